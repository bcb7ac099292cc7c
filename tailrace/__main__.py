"""The console script, and ``python -m tailrace`` for children of ``tailrace run``."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

#: commands that run until they are stopped; stopping one while it loads is not an error
_LONG = ("run", "produce", "consume", "recover", "serve")


def main() -> None:
    """Run the command line.

    A signal that arrives while the program loads ends it without a message: with exit code 0 if the command runs until
    it is stopped, otherwise as the system does. Nothing has started yet.
    """
    # Files, also those of Spark and the stack's servers, are readable only by this user.
    os.umask(0o077)
    # NumPy multiplies no matrices here; its library starts a thread for each processor.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    handler = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:] and sys.argv[1] in _LONG:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, _exit_on_signal)
        handler = _exit_on_signal
    from schemas.interpreter import collect_seldom, import_structlog

    # What is imported stays, so looking for garbage meanwhile finds none.
    collect_seldom()
    import_structlog()
    from tailrace.commands import main as run

    signal.signal(signal.SIGINT, handler)
    run()


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    os._exit(0)


if __name__ == "__main__":
    main()
