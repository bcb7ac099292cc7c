"""Calls the compiled walks over events. Each object belongs to one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from schemas.binlog.compiled import arrays
from schemas.binlog.groups import GroupScanner
from schemas.compiled.types import Argument
from schemas.gtid.sets import Flavor

if TYPE_CHECKING:
    from schemas.compiled.library import Library

# At a time. What has no room is left to the caller, as all that is not usual.
_MOST_GROUPS, _MOST_BYTES = 50_000, 4 << 20
_ENDLESS = 1 << 62


class WholeEvents:
    """Finds where whole and undamaged events end."""

    def __init__(self, library: Library) -> None:
        self._call = library.function("whole_events")
        self._asked = np.zeros(arrays.FIELDS, np.int64)

    def __call__(self, data: bytes, at: int, has_checksum: bool) -> int:
        """Return the end of those from ``data[at]`` on."""
        asked = self._asked
        asked[arrays.AT], asked[arrays.HAS_CHECKSUM] = at, has_checksum
        self._call(np.frombuffer(data, np.uint8), asked)
        return int(asked[arrays.BEHIND])


class Events(NamedTuple):
    """Events that were in packets.

    Attributes:
        behind: where their packets end.
        data: the events.
        events: how many they are.
        position: their end in the upstream's file.
        boundary: the end of the last group that ends among them; None if none does.
        groups: source, first and last number and server id of the groups that end among them, in runs of successive
            numbers; one without a GTID is left out.
        ended: how many groups end among them.
    """

    behind: int
    data: bytes
    events: int
    position: int
    boundary: int | None
    groups: list[tuple[bytes | int, int, int, int]]
    ended: int


class Packets:
    """Takes events from the packets of a binlog dump."""

    def __init__(self, library: Library, flavor: Flavor) -> None:
        self._call, self._is_mariadb = library.function("packets"), flavor == "mariadb"
        self._asked = np.zeros(arrays.FIELDS, np.int64)
        self._out = np.empty(_MOST_BYTES, np.uint8)
        self._runs = np.empty((_MOST_GROUPS, arrays.RUN_FIELDS), np.int64)

    def __call__(
        self,
        data: bytes,
        at: int,
        position: int,
        scanner: GroupScanner,
        has_checksum: bool,
        most: tuple[int, int],
    ) -> Events:
        """Take those from the packet at ``data[at]`` on.

        Args:
            position: of the first one in the upstream's file.
            scanner: knows the open group, and will know the one that is open behind them.
            most: the number of groups and the position at which to stop at the end of a group.
        """
        asked = self._asked
        asked[: arrays.BEHIND] = (
            at, has_checksum, self._is_mariadb, position, scanner.state,
            min(most[0], _MOST_GROUPS), min(most[1], _ENDLESS),
        )  # fmt: skip
        asked[arrays.SERVER_ID] = scanner.server_id
        self._call(np.frombuffer(data, np.uint8), asked, self._out, self._runs)
        behind, size, count, boundary, ended, runs, gtids, source, number, server_id = asked[
            arrays.BEHIND :
        ].tolist()
        taken = self._out[:size].tobytes()
        before = scanner.source, scanner.number, scanner.number, scanner.server_id
        groups = [
            before if was_open else (self._source(taken, at), *fields)
            for at, *fields, was_open in self._runs[:runs].tolist()
        ]
        scanner.state = int(asked[arrays.STATE])
        if gtids:
            scanner.source, scanner.number, scanner.server_id = self._source(taken, source), number, server_id
        return Events(
            behind,
            taken,
            count,
            int(asked[arrays.POSITION]),
            boundary if ended else None,
            [group for group in groups if group[0] is not None],
            ended,
        )

    def _source(self, taken: bytes, source: int) -> bytes | int:
        return source if self._is_mariadb else taken[source : source + 16]


def examples() -> dict[str, tuple[Argument, ...]]:
    """Arguments of the compiled functions, as examples of their types."""
    data, asked = np.zeros(1, np.uint8), np.zeros(arrays.FIELDS, np.int64)
    return {
        "whole_events": (data, asked),
        "packets": (data, asked, data, np.zeros((1, arrays.RUN_FIELDS), np.int64)),
    }
