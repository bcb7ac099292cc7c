"""The key of a channel: its prefix and its name."""

from __future__ import annotations

from typing import NamedTuple

#: the pattern of channel names; the name is also used for a folder and a file
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"


class ChannelKey(NamedTuple):
    """The key of a channel's rows on the downstream: pipelines with other prefixes may have channels of the same name.

    Attributes:
        prefix: the prefix of the Kafka topics that the channel reads.
        name: the channel's name.
    """

    prefix: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} of {self.prefix}"
