"""An upstream with answers that a test chooses: the server's side of the protocol over a real socket."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from schemas.access.server_url import ServerUrl

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
FIRST = "mysql-bin.000001"
_VERSIONS = {"mysql": "9.7.0-fake", "mariadb": "11.4.5-MariaDB-fake"}
# LONG_PASSWORD, PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH, MULTI_RESULTS
_CAPABILITIES = 0x1 | 0x200 | 0x8000 | 0x80000 | 0x20000
_QUERY, _REGISTER, _DUMP, _PREPARE = 0x03, 0x15, 0x12, 0x16
_OK = b"\0\0\0\2\0\0\0"
_EOF = b"\xfe\0\0\2\0"

Rows = Sequence[Sequence[object]]


def framed(payload: bytes, number: int, limit: int = 0xFFFFFF) -> bytes:
    """Return a payload in packets; the first one has the given sequence number."""
    out, part = [], None
    while part is None or len(part) == limit:
        part, payload = payload[:limit], payload[limit:]
        out.append(len(part).to_bytes(3, "little") + bytes((number & 255,)) + part)
        number += 1
    return b"".join(out)


def counted(value: object) -> bytes:
    """Return a value of a text row; NULL for None."""
    if value is None:
        return b"\xfb"
    data = value if isinstance(value, bytes) else str(value).encode()
    size = len(data)
    head = bytes((size,)) if size < 251 else b"\xfc" + size.to_bytes(2, "little")
    return (head if size < 1 << 16 else b"\xfd" + size.to_bytes(3, "little")) + data


def result_set(rows: Rows) -> bytes:
    """Return the packets of a query's answer."""
    width = len(rows[0]) if rows else 1
    column = b"".join(map(counted, ("def", "", "", "", "c", "c"))) + struct.pack(
        "<BHIBHBH", 12, 45, 1024, 253, 0, 0, 0
    )
    payloads = [
        bytes((width,)),
        *[column] * width,
        _EOF,
        *(b"".join(map(counted, row)) for row in rows),
        _EOF,
    ]
    return b"".join(framed(payload, number) for number, payload in enumerate(payloads, 1))


class FakeUpstream:
    """Answers each connection in a thread of its own.

    Attributes:
        answers: rows by a text that the query contains; the first match is used. Bytes are sent unchanged.
        stream: the chunks of bytes that a dump sends. After the last one it sends nothing.
        greeting: sent first instead of a server's greeting.
        login: sent after the client's login instead of OK.
        prepared: sent when a statement is to be prepared.
        asked: the queries that it received.
    """

    def __init__(self, flavor: str = "mysql") -> None:
        self.answers: dict[str, Rows | bytes] = usual_answers(flavor)
        self.stream: Callable[[], Iterable[bytes]] = lambda: ()
        self.greeting: Callable[[], Iterable[bytes]] | None = None
        self.login: bytes = framed(_OK, 2)
        self.prepared: bytes = framed(_OK, 1)
        self.asked: list[str] = []
        self.received: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._version = _VERSIONS[flavor]
        self.url = ServerUrl("127.0.0.1", self._listener.getsockname()[1], "root")
        threading.Thread(target=self._accept, daemon=True).start()

    def sends(self, *events: bytes) -> None:
        """Set the events of a dump, each in a packet of its own."""
        data = b"".join(framed(b"\0" + event, 1) for event in events)
        self.stream = lambda: (data,)

    def close(self) -> None:
        """Close all connections."""
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            if self.greeting is not None:
                for piece in self.greeting():
                    client.sendall(piece)
                _read_packet(client)
                return
            salt = bytes(range(1, 21))
            low, high = struct.pack("<H", _CAPABILITIES & 0xFFFF), struct.pack("<H", _CAPABILITIES >> 16)
            hello = b"\x0a" + self._version.encode() + b"\0" + struct.pack("<I", 7) + salt[:8] + b"\0" + low
            hello += b"\x2d\2\0" + high + b"\x15" + bytes(10) + salt[8:] + b"\0mysql_native_password\0"
            client.sendall(framed(hello, 0))
            self.received.append(_read_packet(client))
            client.sendall(self.login)
            while True:
                command = _read_packet(client)
                if command[0] == _DUMP:
                    for piece in self.stream():
                        client.sendall(piece)
                    _read_packet(client)
                    return
                self.received.append(command)
                client.sendall(self._answer(command))

    def _answer(self, command: bytes) -> bytes:
        if command[0] != _QUERY:
            return self.prepared if command[0] == _PREPARE else framed(_OK, 1)
        text = command[1:].decode()
        self.asked.append(text)
        for part, answer in self.answers.items():
            if part in text:
                return answer if isinstance(answer, bytes) else result_set(answer)
        return framed(_OK, 1) if text.startswith(("SET", "set")) else result_set([])


def usual_answers(flavor: str) -> dict[str, Rows | bytes]:
    """Return the answers of a server with one binlog file and GTIDs."""
    common: dict[str, Rows | bytes] = {
        "VERSION()": [[_VERSIONS[flavor]]],
        "'server_id'": [["server_id", 1]],
        "'log_bin'": [["log_bin", "ON"]],
        "'binlog_checksum'": [["binlog_checksum", "CRC32"]],
        "'binlog_format'": [["binlog_format", "ROW"]],
        "SHOW BINARY LOGS": [[FIRST, 1 << 20]],
        "SHOW BINLOG EVENTS": [[FIRST, 127, "Previous_gtids", 1, 158, ""]],
    }
    if flavor == "mysql":
        return common | {
            "'server_uuid'": [["server_uuid", UUID]],
            "'gtid_mode'": [["gtid_mode", "ON"]],
            "'gtid_purged'": [["gtid_purged", ""]],
            "SHOW BINARY LOG STATUS": [[FIRST, 4, "", "", ""]],
        }
    return common | {
        "gtid_binlog_state": [[""]],
        "SHOW MASTER STATUS": [[FIRST, 4, "", ""]],
        "BINLOG_GTID_POS": [[""]],
        "'gtid_domain_id'": [["gtid_domain_id", 0]],
    }


def _read_packet(client: socket.socket) -> bytes:
    head = _read(client, 4)
    return _read(client, int.from_bytes(head[:3], "little"))


def _read(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = client.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


@contextmanager
def fake_upstream(flavor: str = "mysql") -> Iterator[FakeUpstream]:
    """Yield a fake upstream on 127.0.0.1."""
    made = FakeUpstream(flavor)
    try:
        yield made
    finally:
        made.close()
