"""Cuts the bytes of a binlog dump into events: MySQL's packet framing without a socket."""

from __future__ import annotations

import struct

from schemas.binlog.framing import EVENT_SIZE, HEADER_SIZE, MAX_EVENT, MAX_PACKET, SIZE_OFFSET
from schemas.errors import UpstreamError

_OK = 0
_MAX_WORDS = 64 << 10  # bytes of an error packet; servers cut their messages at 512
_MAX_TEXT = 1024

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
    about the size, or no server sends an event of that size. Sizes are compared before anything is waited for.
    """
    if len(data) < UNKNOWN:
        return b"", 0, UNKNOWN
    packet = int.from_bytes(data[:3], "little")
    if packet and data[4] != _OK:
        if packet > _MAX_WORDS:
            raise _garbled(f"a packet of {packet} bytes with an error in it")
        if len(data) < 4 + packet:
            return b"", 0, 4 + packet
        raise _server_said(data[4 : 4 + packet])
    if packet < 1 + HEADER_SIZE:
        raise _garbled(f"a packet of {packet} bytes, too short for an event")
    if len(data) < 5 + HEADER_SIZE:
        return b"", 0, 5 + HEADER_SIZE
    size = EVENT_SIZE.unpack_from(data, 5 + SIZE_OFFSET)[0]
    if packet != min(size + 1, MAX_PACKET):
        raise _garbled(f"a packet of {packet} bytes with an event that says that it has {size}")
    if size > MAX_EVENT:
        raise _too_large(size)
    whole = size + 1 + 4 * ((size + 1) // MAX_PACKET + 1)
    if len(data) < whole:
        return b"", 0, whole
    return _joined(data, whole), whole, UNKNOWN


def _joined(data: bytes, whole: int) -> bytes:
    """An event that is here whole: in one packet or, with 16 MB and more, in several."""
    parts, at = [], 0
    while at < whole:
        expected = min(whole - at - 4, MAX_PACKET)
        packet = int.from_bytes(data[at : at + 3], "little")
        if packet != expected:
            raise _garbled(f"a packet of {packet} bytes within an event, of which {expected} were expected")
        parts.append(data[at + 4 : at + 4 + packet])
        at += 4 + packet
    parts[0] = parts[0][1:]
    return b"".join(parts)


def _garbled(what: str) -> UpstreamError:
    return UpstreamError("TR208", what, hint="the data was corrupted in transit", retryable=True)


def _too_large(size: int) -> UpstreamError:
    what = f"an event that says it has {size} bytes, and no server sends more than {MAX_EVENT}"
    return UpstreamError(
        "TR208", what, hint="nothing was read; the peer is probably not a MySQL or MariaDB server"
    )


def _server_said(packet: bytes) -> ServerSaid:
    if packet[0] == 0xFE and len(packet) < 9:
        return ServerSaid(0, "the server ended the stream")
    number = int.from_bytes(packet[1:3], "little")
    text = packet[3 : 3 + _MAX_TEXT].decode(errors="replace")
    return ServerSaid(number, text[6:] if text.startswith("#") else text)
