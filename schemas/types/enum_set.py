"""ENUM and SET. Avro string: the member, or the members in definition order joined by commas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.structure import Column
from schemas.types.codec import Lines, plain_predicate, read_length
from schemas.varint import encode_bytes

ENUM, SET = 247, 248


def error_value(members: tuple[str, ...]) -> str:
    """What stands for index 0, the value of what was no member: ``''``, which servers show, unless that is a member."""
    return next(text for n in range(len(members) + 1) if (text := "\0" * n) not in members)


class EnumTable(dict[int, bytes]):
    """Member number to Avro string."""

    def __init__(self, members: tuple[str, ...]) -> None:
        super().__init__({i: encode_bytes(m.encode()) for i, m in enumerate(members, start=1)})
        self[0] = encode_bytes(error_value(members).encode())


class SetTable(dict[int, bytes]):
    """Member bits to Avro string, made on first use."""

    def __init__(self, members: tuple[str, ...]) -> None:
        super().__init__()
        self.members = members

    def __missing__(self, bits: int) -> bytes:
        if bits >> len(self.members):
            raise KeyError(bits)
        chosen = [member for i, member in enumerate(self.members) if bits >> i & 1]
        text = self[bits] = encode_bytes(",".join(chosen).encode())
        return text


class EnumSet:
    """ENUM and SET."""

    names: Mapping[str, Any] = {}

    def constant(self, column: Column) -> EnumTable | SetTable:
        """The column's members, ready made; the generated code knows it as ``<target>_table``."""
        return (EnumTable if column.code == ENUM else SetTable)(column.members)

    def avro(self, column: Column) -> list[Any]:
        """Avro string; not an Avro enum, whose symbols could not hold MySQL's members."""
        return ["string"]

    def decode(self, column: Column, target: str, tags: list[str]) -> Lines:
        """See ``Codec.decode``."""
        size = column.meta
        read = "b[p]" if size == 1 else f"from_bytes(b[p:p+{size}], 'little')"
        return [f"{target} = {tags[0]} + {target}_table[{read}]; p += {size}"]

    def literal(self, column: Column, target: str, branches: int) -> Lines:
        """See ``Codec.literal``. ENUM's empty error value is index 0: no text would be accepted for it."""
        lines = read_length("d")
        quoted = f'{target} = b"\'" + d.replace(b"\'", b"\'\'") + b"\'"'
        if column.code == ENUM:
            return [*lines, f"if d == {_error(column)!r}: {target} = b'0'", f"else: {quoted}"]
        return [*lines, quoted]

    def value(self, column: Column, target: str, branches: int) -> Lines:
        """See ``Codec.value``. The text."""
        if column.code == ENUM:
            return [*read_length("d"), f"{target} = '' if d == {_error(column)!r} else d.decode()"]
        return [*read_length("d"), f"{target} = d.decode()"]

    def predicate(self, column: Column, quoted: bytes) -> tuple[bytes, bytes]:
        """See ``Codec.predicate``."""
        return plain_predicate(quoted)


def _error(column: Column) -> bytes:
    return error_value(column.members).encode()
