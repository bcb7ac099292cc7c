"""How much of copies may lie in the log before a channel, so that the changes behind it are not held up for long.

A channel applies the log in order, and a producer reads a table several times as fast as a channel writes it. So
readers wait while a channel has a window full of copied rows to apply. Windows are made as LEDBAT and FAST TCP make
theirs (RFC 6817): from how long epochs take until they are applied, and how long they take with nothing before them.
No rate has to be known, and a channel that takes long for each epoch, but for many at a time, gets a large window.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple, Protocol

#: what may be read while nobody waits for copied rows
NO_LIMIT = sys.maxsize
#: bytes that a row counts more than it has: many small ones take long too
ROW = 500

# Seconds that copied rows may delay what is behind them; longer for a channel that takes long without them.
_HOLD_UP = 0.3
_FIRST, _LEAST, _MOST = 8 << 20, 2 << 20, 256 << 20  # bytes of a window
_CHUNKS = 3  # of a window: a channel applies larger ones faster, but changes are only between them
_SHRINK = 0.5  # what is left of a window at least: the next table's rows may take twice as long
_SMALL = 512 << 10  # bytes of a chunk by itself
_CHANGING = 60.0  # seconds without changes after which nothing is held back
_PATIENCE = 15.0  # seconds without progress after which a channel is not waited for
_ANSWER = 3.0  # seconds that the first look at a channel may take
_PROBE = 30.0  # seconds after which a channel is given one small chunk by itself; longer if that takes long


def weight(rows: int, size: int) -> int:
    """Return the bytes that rows of this size count in a window."""
    return size + ROW * rows


class Channel(Protocol):
    """A channel that applies the log."""

    name: str

    def epoch(self) -> int | None:
        """Return the last epoch that it has applied; None if that is not known, or it does not run."""
        ...

    def close(self) -> None:
        """Close the connection, which the next question opens again."""
        ...


class _Written(NamedTuple):
    """An epoch of a copy.

    Attributes:
        at: when it was written, seconds.
        size: bytes, as they count.
        is_alone: whether the channel has nothing else of copies to apply meanwhile.
        is_inside: whether it was written into the window, as all are while there is a limit.
    """

    epoch: int
    at: float
    size: int
    is_alone: bool
    is_inside: bool


@dataclass
class _Followed:
    """What is known of a channel.

    Attributes:
        is_known: whether somebody has looked where it is.
        awaited: when somebody began to wait for that.
        epoch: the last one that it has applied; None while it does not run, or cannot be reached.
        ahead: what is written and not applied.
        size: bytes of that.
        progressed: when it last applied something of that, or first had something to apply.
        window: bytes that may be ahead.
        growth: what the window is multiplied by at most, at a time; less once it was too large.
        resized: when it was changed last.
        was_full: whether somebody has waited for room since then.
        alone: how long the last two chunks took that had nothing else of copies before or behind them. One may have
            had a long DDL before it.
        is_probing: whether the next one is such a chunk.
        probed: when the last one was written.
    """

    name: str
    is_known: bool = False
    awaited: float | None = None
    epoch: int | None = None
    ahead: deque[_Written] = field(default_factory=deque)
    size: int = 0
    progressed: float = 0.0
    window: float = _FIRST
    growth: float = 2.0
    resized: float = 0.0
    was_full: bool = False
    alone: deque[float] = field(default_factory=lambda: deque(maxlen=2))
    is_probing: bool = False
    probed: float = float("-inf")

    def forget(self) -> None:
        self.is_known, self.awaited, self.epoch = False, None, None
        self.is_probing, self.probed = False, float("-inf")
        self.alone.clear()

    def wrote(self, epoch: int, size: int, now: float) -> None:
        is_alone = self.is_probing and size > 0 and not self.ahead
        if is_alone:
            self.is_probing, self.probed = False, now
        if not self.ahead:
            self.progressed = now
        self.size += size
        is_inside = size > 0 and not is_alone and self.size <= self.window
        self.ahead.append(_Written(epoch, now, size, is_alone, is_inside))

    def applied(self, epoch: int | None, now: float) -> None:
        if epoch is None:
            self.forget()
            self.is_known = True
            return
        is_first = self.epoch is None
        self.is_known, self.epoch = True, epoch
        done = []
        while self.ahead and self.ahead[0].epoch <= epoch:
            done.append(self.ahead.popleft())
        self.size -= sum(one.size for one in done)
        if is_first or done:
            self.progressed = now
        # When it passed them is not known at the first look.
        if not is_first:
            self._measure(done, now)

    def _measure(self, done: list[_Written], now: float) -> None:
        self.alone.extend(now - one.at for one in done if one.is_alone)
        # Those before the last change of the window tell nothing of its size.
        delays = [now - one.at for one in done if one.is_inside and one.at >= self.resized]
        if not delays or not self.alone:
            return
        alone = min(self.alone)
        factor = (alone + max(_HOLD_UP, alone / 3)) / max(fmean(delays), 0.001)
        if factor < 1 or self.was_full:
            if factor < 1:
                self.growth = 1.25
            self.window = min(_MOST, max(_LEAST, self.window * min(self.growth, max(_SHRINK, factor))))
            self.resized, self.was_full = now, False

    def room(self, read: int, now: float) -> int:
        """Bytes that may be read next.

        Args:
            read: bytes that are being read, or wait to be written.
        """
        if not self.is_known:
            self.awaited = now if self.awaited is None else self.awaited
            return 0 if now - self.awaited < _ANSWER else NO_LIMIT
        if self.epoch is None or (self.ahead and now - self.progressed > _PATIENCE):
            return NO_LIMIT
        if now - self.probed > _PROBE + min(2 * sum(self.alone), 2 * _PROBE):
            if self.ahead or read:
                return 0
            self.is_probing = True
            return _SMALL
        if self.ahead and self.ahead[0].is_alone:
            return 0
        part, used = int(self.window) // _CHUNKS, self.size + read
        if used and used + part > self.window:
            self.was_full = True
            return 0
        return part


class CopyWindow:
    """Limits what is read for copies while the log has changes too. All methods may be called by any thread.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, channels: Sequence[str] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._channels = {name: _Followed(name) for name in channels}
        self._lock = threading.Lock()
        self._changed = float("-inf")
        self._reading = 0
        self._held: tuple[float, str] | None = None

    @property
    def held_by(self) -> str | None:
        """The channel that readers have waited for a while now; None if there is none."""
        held = self._held
        return held[1] if held is not None and self._clock() - held[0] > _PATIENCE else None

    def changed(self) -> None:
        """An epoch with changes was written."""
        self._changed = self._clock()

    def wrote(self, epoch: int, rows: int, size: int) -> None:
        """An epoch of a copy was written.

        Args:
            size: bytes of the rows.
        """
        with self._lock:
            for channel in self._channels.values():
                channel.wrote(epoch, weight(rows, size), self._clock())

    def applied(self, name: str, epoch: int | None) -> None:
        """Note how far a channel is; None if that is not known. To be called several times a second."""
        with self._lock:
            self._channels[name].applied(epoch, self._clock())

    def forget(self, name: str) -> None:
        """Nobody looks at a channel any more."""
        with self._lock:
            self._channels[name].forget()
            self._held = None

    def take(self, waiting: int) -> int:
        """Return how many bytes may be read now, with ``ROW`` for each row; 0 if none.

        They count as being read until they are given back.

        Args:
            waiting: bytes that were read, and wait to be written.
        """
        now = self._clock()
        with self._lock:
            if not self._channels or now - self._changed > _CHANGING:
                self._held = None
                return NO_LIMIT
            read = self._reading + waiting
            most, name = min((one.room(read, now), one.name) for one in self._channels.values())
            if most:
                self._held = None
            elif self._held is None:
                self._held = now, name
            if most < NO_LIMIT:
                self._reading += most
            return most

    def give_back(self, most: int) -> None:
        """What was taken is read, and waits to be written."""
        if most < NO_LIMIT:
            with self._lock:
                self._reading -= most
