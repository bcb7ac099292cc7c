"""Makes processes that Spark starts ignore the signals that end the driver.

A service manager sends them to every process, a terminal to a process group. The driver then finishes the current
batch, for which it needs the JVM and its Python workers. They end with the driver: the JVM's stdin is a pipe from the
driver, and that of the workers is a pipe from the JVM.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

#: child processes inherit ignored signals, and the JVM does not change that
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_IGNORED = " ".join(number.name.removeprefix("SIG") for number in SIGNALS)


def ignoring_signals(command: Sequence[str]) -> list[str]:
    """Return the command that runs another one without these signals.

    A shell does it: Python code between fork and exec may crash in a process with threads.
    """
    return ["/bin/sh", "-c", f'trap \'\' {_IGNORED}; exec "$0" "$@"', *command]
