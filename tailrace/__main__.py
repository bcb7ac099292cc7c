"""The console script, and ``python -m tailrace`` for children of ``tailrace run``."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line. Ctrl-C ends what only imports yet without a word, as SIGTERM does."""
    ours = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tailrace.cli import main as run

    signal.signal(signal.SIGINT, ours)
    run()


if __name__ == "__main__":
    main()
