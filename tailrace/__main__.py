"""``python -m tailrace``: the console script, for children of ``tailrace run``."""

from __future__ import annotations

from tailrace.cli import main

if __name__ == "__main__":
    main()
