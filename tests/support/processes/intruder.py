"""Tries what another user of the machine can do to our processes: their listeners and their answers."""

from __future__ import annotations

import os
import pickle
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")
_NOBODY = 65534
_PATIENCE = 3.0
_LISTENS = "0A"


def as_nobody(work: Callable[[], _T]) -> _T:
    """Call ``work`` as the user ``nobody`` and return its result; needs root."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)
            os.write(writer, pickle.dumps(work()))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        found = said.read()
    os.waitpid(child, 0)
    result: _T = pickle.loads(found)
    return result


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def ports(pids: list[int]) -> set[int]:
    """Return the TCP ports on which processes listen."""
    ours = _sockets(pids)
    lines = [
        line for table in ("tcp", "tcp6") for line in Path("/proc/net", table).read_text().splitlines()[1:]
    ]
    fields = [line.split() for line in lines]
    return {int(one[1].rpartition(":")[2], 16) for one in fields if one[3] == _LISTENS and one[9] in ours}


def unix_sockets(pids: list[int]) -> set[str]:
    """Return the paths or abstract names of the unix sockets on which processes listen."""
    ours = _sockets(pids)
    fields = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {one[7] for one in fields if len(one) > 7 and int(one[3], 16) & 0x10000 and one[6] in ours}


def _sockets(pids: list[int]) -> set[str]:
    found = set()
    for pid in pids:
        with suppress(OSError):  # it has ended meanwhile
            for link in Path("/proc", str(pid), "fd").iterdir():
                with suppress(OSError):
                    found.add(os.readlink(link))
    return {name[8:-1] for name in found if name.startswith("socket:[")}


def command_lines(pids: list[int]) -> list[bytes]:
    """Return the command lines of the processes that still run."""
    found = []
    for pid in pids:
        with suppress(OSError):
            found.append(Path("/proc", str(pid), "cmdline").read_bytes())
    return found


def answer(port: int, sent: bytes) -> bytes:
    """Send bytes to a port, and return its answer until it closes the connection or stays silent."""
    said = b""
    with socket.create_connection(("127.0.0.1", port), _PATIENCE) as connection:
        connection.settimeout(_PATIENCE)
        with suppress(OSError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 16):
                said += part
    return said


def attempts() -> Iterator[bytes]:
    """Yield requests that an attacker without the secret may send: commands of py4j, messages of Spark, and others."""
    yield b"\x00" * 64
    yield b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield b"\xff" * 20_000_000
    yield b"s\np0\ne\n"  # py4j: shut down
    yield b"c\np0\ncall\ne\n"  # py4j: call the first object
    yield b"A\nwrong token\nc\np0\ncall\ne\n"
    yield b"r\nu\norg.apache.spark.SparkContext\nrj\ne\n"
    yield b"k\ns\ne\n"  # py4j: shut the gateway down
    yield _frame(
        b"\x03" + struct.pack(">qi", 7, 64), b"\xac\xed\x00\x05" + bytes(60)
    )  # Spark: an RPC, Java's form
    yield _frame(b"\x09" + struct.pack(">i", 64), bytes(64))  # Spark: a message of one way
    yield _frame(b"\x06" + _text("/jars/any.jar"))  # Spark: a stream
    for number in range(4):
        yield open_block(f"broadcast_{number}_piece0")


def open_block(name: str) -> bytes:
    """Return the request to one of Spark's block managers for a block and its first chunk under the first few ids."""
    body = b"\x00" + _text("app") + _text("exec") + struct.pack(">i", 1) + _text(name)
    return _frame(b"\x03" + struct.pack(">qi", 7, len(body)), body)


def has_opened(said: bytes) -> bool:
    """Return whether a block manager has answered with a stream handle and not with a failure."""
    return len(said) > 8 and said[8] == 4


def _frame(head: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">q", 8 + len(head) + len(body)) + head + body


def _text(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()
