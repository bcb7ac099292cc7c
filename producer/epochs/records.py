"""Row records for Kafka, keys and values in lists of their own, so that ``map`` can work on all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

#: of one record
Headers = list[tuple[str, bytes]]


@dataclass
class Records:
    """Neighbors of one epoch.

    Attributes:
        first: the number in the epoch of the first.
        keys: one each.
        values: one each.
        headers: by number in the epoch, of those few that have some: the halves of a key change.
    """

    first: int = 0
    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    headers: dict[int, Headers] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, number: int) -> Records:
        """The first records, which are no longer here then."""
        behind = self.first + number
        headers = {n: self.headers.pop(n) for n in [n for n in self.headers if n < behind]}
        taken = Records(self.first, self.keys[:number], self.values[:number], headers)
        del self.keys[:number], self.values[:number]
        self.first = behind
        return taken

    def drop_last(self, number: int) -> list[tuple[bytes, bool]]:
        """Forget the last records; returns the value of each, and whether it was half of a key change."""
        keep = len(self) - number
        dropped = [
            (value, self.headers.pop(n, None) is not None)
            for n, value in enumerate(self.values[keep:], self.first + keep)
        ]
        del self.keys[keep:], self.values[keep:]
        return dropped
