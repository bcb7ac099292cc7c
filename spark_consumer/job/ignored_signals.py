"""Makes processes that Spark starts ignore the signals that end the driver.

A service manager sends them to every process, a terminal to a process group. The driver then finishes the current
batch, for which it needs the JVM and its Python workers. They end with the driver: the JVM's stdin is a pipe from the
driver, and that of the workers is a pipe from the JVM.
"""

from __future__ import annotations

import os
import signal

#: child processes inherit ignored signals, and the JVM does not change that
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ignore_signals() -> None:
    """Start a new session and ignore these signals; a ``preexec_fn``."""
    os.setsid()
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
