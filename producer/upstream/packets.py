"""Cuts the bytes of a binlog dump into events: MySQL's packet framing without a socket."""

from __future__ import annotations

import struct

from schemas.binlog import EVENT_SIZE, HEADER_SIZE, SIZE_OFFSET
from schemas.errors import UpstreamError

MAX_PACKET = 0xFFFFFF  # a packet of this size goes on in the next one
_OK = 0

# 3 bytes of packet size and 1 of sequence number; the status byte; then the event's own header:
# timestamp (skipped), type, server id (skipped), size, end position, flags.
HEADS = struct.Struct("<IB4xB4xIIH")
UNKNOWN = 5  # bytes needed to see a packet's size and status


class ServerSaid(Exception):
    """The stream ended with an error packet (its number and text) or an EOF packet (number 0)."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(number, text)
        self.number = number
        self.text = text


def slow_packet(data: bytes) -> tuple[bytes, int, int]:
    """The event in the front packets of `data`, for what a fast loop over `HEADS` leaves.

    Returns:
        The event, empty if it is not here whole; the bytes it took; the bytes needed at least for it
        (or for the next one).

    Raises ServerSaid for an error or EOF packet, UpstreamError TR208 when packet and event disagree
    about the size.
    """
    if len(data) < UNKNOWN:
        return b"", 0, UNKNOWN
    packet = int.from_bytes(data[:3], "little")
    if data[4] == _OK:
        return _join_packets(data)
    if len(data) < 4 + packet:
        return b"", 0, 4 + packet
    raise _server_said(data[4 : 4 + packet])


def _join_packets(data: bytes) -> tuple[bytes, int, int]:
    """An event in one packet, or, with 16 MB and more, in several."""
    parts, at, packet = [], 0, MAX_PACKET
    while packet == MAX_PACKET:
        if at + 4 > len(data):
            return b"", 0, at + 4
        packet = int.from_bytes(data[at : at + 3], "little")
        after = at + 4 + packet
        if after > len(data):
            return b"", 0, after
        parts.append(data[at + 4 : after])
        at = after
    event = b"".join(parts)[1:]
    size = EVENT_SIZE.unpack_from(event, SIZE_OFFSET)[0] if len(event) >= HEADER_SIZE else 0
    if size != len(event):
        raise _size_mismatch(size, len(event))
    return event, at, UNKNOWN


def _size_mismatch(said: int, got: int) -> UpstreamError:
    what = f"a packet with an event of {got} bytes says that it has {said}"
    return UpstreamError("TR208", what, hint="the stream was garbled on the way", retryable=True)


def _server_said(packet: bytes) -> ServerSaid:
    if packet[0] == 0xFE and len(packet) < 9:
        return ServerSaid(0, "the server ended the stream")
    number = int.from_bytes(packet[1:3], "little")
    text = packet[3:].decode(errors="replace")
    return ServerSaid(number, text[6:] if text.startswith("#") else text)
