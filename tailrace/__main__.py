"""The console script, and ``python -m tailrace`` for children of ``tailrace run``."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

#: commands that run until they are stopped; to stop one that only loads yet is no failure
_LONG = ("run", "produce", "consume", "recover")


def main() -> None:
    """Run the command line.

    A signal that comes while it only loads ends it as the system does, without a word, or with 0 where a stop is the
    usual end: nothing has begun.
    """
    # What is written, also by Spark and the stack's servers, is this user's alone.
    os.umask(0o077)
    ours = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:] and sys.argv[1] in _LONG:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, _exit_on_signal)
        ours = _exit_on_signal
    from tailrace.commands import main as run

    signal.signal(signal.SIGINT, ours)
    run()


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    os._exit(0)


if __name__ == "__main__":
    main()
