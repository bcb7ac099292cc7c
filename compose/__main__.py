"""``python -m compose``: fetch every artifact of the stack into the cache."""

from __future__ import annotations

import sys

from compose.artifacts import fetch_all
from compose.errors import StackError


def main() -> int:
    try:
        fetch_all()
    except StackError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
