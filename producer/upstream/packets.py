"""Cuts the bytes of a binlog dump into events: MySQL's packet framing without a socket."""

from __future__ import annotations

import struct

_SIZE_MASK = 0xFFFFFF
MAX_PACKET = 0xFFFFFF  # a packet of this size goes on in the next one
_HEAD = struct.Struct("<IB")  # 3 bytes of size and 1 of sequence number, then the status byte
_OK = 0


class ServerSaid(Exception):
    """The stream ended with an error packet (its number and text) or an EOF packet (number 0)."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(number, text)
        self.number = number
        self.text = text


def split_packets(data: memoryview) -> tuple[list[memoryview], int, int]:
    """Events in the whole packets at the front of `data`.

    Returns:
        The events; how many bytes they took; how many bytes are needed at least from there on for
        the next event (5 if not even its size is known).

    Raises ServerSaid when an error or EOF packet is at the front; events before one come first.
    """
    events: list[memoryview] = []
    unpack = _HEAD.unpack_from
    at, end, need = 0, len(data), 5
    while at + 5 <= end:
        head, status = unpack(data, at)
        size = head & _SIZE_MASK
        after = at + 4 + size
        if status != _OK:
            if events or after > end:
                need = 4 + size
                break
            raise _server_said(bytes(data[at + 4 : after]))
        if size == MAX_PACKET:
            event, after, need = _join_packets(data, at)
            if event is None:
                break
            events.append(event)
        elif after > end:
            need = 4 + size
            break
        else:
            events.append(data[at + 5 : after])
        at = after
        need = 5
    return events, at, need


def _join_packets(data: memoryview, start: int) -> tuple[memoryview | None, int, int]:
    """An event of 16 MB or more, which spans packets: the event, where it ends, bytes needed."""
    parts, at, size = [], start, MAX_PACKET
    while size == MAX_PACKET:
        if at + 4 > len(data):
            return None, at, at + 4 - start
        size = int.from_bytes(data[at : at + 3], "little")
        after = at + 4 + size
        if after > len(data):
            return None, at, after - start
        parts.append(data[at + 4 : after])
        at = after
    return memoryview(b"".join(parts))[1:], at, 5


def _server_said(packet: bytes) -> ServerSaid:
    if packet[0] == 0xFE and len(packet) < 9:
        return ServerSaid(0, "the server ended the stream")
    number = int.from_bytes(packet[1:3], "little")
    text = packet[3:].decode(errors="replace")
    return ServerSaid(number, text[6:] if text.startswith("#") else text)
