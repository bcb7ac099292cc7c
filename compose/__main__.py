"""``python -m compose [up|down|status DIR]``: manages the embedded stack; without arguments fetches its programs.

It prints JSON on stdout. A StackError is an object with ``code``, ``what`` and ``hint``, with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from compose.artifacts import fetch_all
from compose.databases import FLAVORS
from compose.stack import Stack
from schemas.errors import StackError


def main() -> int:
    """Run the command in the arguments; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compose", description=__doc__)
    parser.add_argument("action", nargs="?", choices=("fetch", "up", "down", "status"), default="fetch")
    parser.add_argument("directory", nargs="?", default="var/stack")
    parser.add_argument("--upstream", choices=FLAVORS, default="mariadb")
    parser.add_argument("--downstream", choices=FLAVORS, default="mariadb")
    arguments = parser.parse_args()
    try:
        answer = _answer(arguments)
    except (StackError, OSError) as found:
        # A folder that cannot be created needs no traceback.
        error = found if isinstance(found, StackError) else StackError("TR700 failed", str(found))
        print(error, file=sys.stderr) if arguments.action == "fetch" else print(json.dumps(error.as_dict()))
        return 1
    except KeyboardInterrupt:
        return 130
    if answer is not None:
        print(json.dumps(answer))
    return 0


def _answer(arguments: argparse.Namespace) -> Any:
    stack = Stack(arguments.directory)
    if arguments.action == "up":
        return asdict(stack.up(arguments.upstream, arguments.downstream))
    if arguments.action == "down":
        return stack.down()
    if arguments.action == "status":
        return [asdict(server) for server in stack.status()]
    return fetch_all()


if __name__ == "__main__":
    sys.exit(main())
