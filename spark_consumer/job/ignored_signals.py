"""Makes processes that Spark starts ignore the signals that end the driver.

A service manager sends them to every process, a terminal to a whole group. The driver finishes the batch in hand then,
and needs the JVM and its Python workers for that. They end with the driver: the JVM's stdin is a pipe from it, and
theirs are pipes from the JVM.
"""

from __future__ import annotations

import os
import signal

#: an ignored signal stays ignored in what a process starts; the JVM leaves it so, too
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ignore_signals() -> None:
    """preexec function: start a new session and ignore these signals."""
    os.setsid()
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
