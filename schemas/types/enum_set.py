"""ENUM and SET. Avro string: the member, or the members in definition order joined by commas."""

from __future__ import annotations

from typing import Any

from schemas.structure import Column, WrittenColumn
from schemas.types.codec import Codec, Lines, number_field, read_length, text_predicate
from schemas.types.parameter import COUNTED, LONGLONG, STRING, Parameter, counted_value
from schemas.varint import encode_bytes

ENUM, SET = 247, 248
_MOST_TEXTS = 1 << 16  # combinations of members in the cache
_MOST_TWINS = 1_000


def member_texts(column: Column) -> tuple[str, ...]:
    """Return distinct texts for a column's members.

    Without strict mode a server accepts a list that has a member twice, and a SET may have the member ``''``, which
    is also the SET's value without members. NUL characters are appended to make such members distinct.

    Raises:
        ValueError: a member occurs too often.
    """
    texts: dict[str, None] = {} if column.code == ENUM else {"": None}
    members = frozenset(column.members)
    twins: dict[str, int] = {}
    for member in column.members:
        text = member
        while text in texts or (text != member and text in members):
            twins[member] = twins.get(member, 0) + 1
            text = member + "\0" * twins[member]
            if twins[member] > _MOST_TWINS:
                raise ValueError(
                    f"column {column.name} has the member {member[:60]!r} more than {_MOST_TWINS} times"
                )
        texts[text] = None
    return tuple(texts)[len(texts) - len(column.members) :]


def error_value(column: Column) -> str:
    """Return the text of index 0, the value of an invalid member: ``''``, as servers show it, unless it is a member."""
    texts = frozenset(member_texts(column))
    return next(text for n in range(len(texts) + 1) if (text := "\0" * n) not in texts)


class EnumTable(dict[int, bytes]):
    """Member number to Avro string."""

    def __init__(self, column: Column) -> None:
        texts = (error_value(column), *member_texts(column))
        super().__init__({number: encode_bytes(text.encode()) for number, text in enumerate(texts)})


class SetTable(dict[int, bytes]):
    """Member bits to Avro string, created on first use."""

    def __init__(self, column: Column) -> None:
        super().__init__()
        self.texts = member_texts(column)

    def __missing__(self, bits: int) -> bytes:
        if bits >> len(self.texts):
            raise KeyError(bits)
        if len(self) >= _MOST_TEXTS:
            self.clear()
        chosen = [member for i, member in enumerate(self.texts) if bits >> i & 1]
        text = self[bits] = encode_bytes(",".join(chosen).encode())
        return text


class EnumSet(Codec):
    """ENUM and SET."""

    def constant(self, column: Column) -> EnumTable | SetTable:
        """Return the table of the column's members, which the generated code calls ``<target>_table``."""
        return (EnumTable if column.code == ENUM else SetTable)(column)

    def avro(self, column: Column) -> list[Any]:
        """Avro string; not an Avro enum, whose symbols cannot be arbitrary text."""
        return ["string"]

    def decode(self, column: Column, target: str, tags: list[str]) -> Lines:
        size = column.meta
        read = "b[p]" if size == 1 else f"from_bytes(b[p:p+{size:d}], 'little')"
        return [f"{target} = {tags[0]} + {target}_table[{read}]; p += {size:d}"]

    def select(self, column: Column, quoted: str) -> list[str]:
        """The member's number, or the members' bits."""
        return [f"CAST({quoted} AS UNSIGNED)"]

    def encode(self, column: Column, target: str, tags: list[str]) -> Lines:
        return [*number_field(), f"{target} = {tags[0]} + {target}_table[i]"]

    def literal(self, column: Column, target: str, branches: int) -> Lines:
        """ENUM's error value is written as index 0, since no text is accepted for it."""
        lines = read_length("d")
        quoted = f'{target} = b"\'" + d.replace(b"\'", b"\'\'") + b"\'"'
        if column.code == ENUM:
            return [*lines, f"if d == {_error(column)!r}: {target} = b'0'", f"else: {quoted}"]
        return [*lines, quoted]

    def parameter(self, column: Column, target: str, branches: int) -> Parameter:
        """ENUM's error value has no form."""
        lines = read_length("d")
        if column.code != ENUM:
            return Parameter(STRING, [*lines, counted_value(target)], COUNTED)
        lines.append(f"if d == {_error(column)!r}: raise NoParameter")
        return Parameter(STRING, [*lines, counted_value(target)], COUNTED, len(_error(column)))

    def value(self, column: Column, target: str, branches: int) -> Lines:
        """The text, as servers show it."""
        text = "d.decode()"
        if member_texts(column) != column.members:
            text += ".replace('\\0', '')"
        if column.code == ENUM:
            return [*read_length("d"), f"{target} = '' if d == {_error(column)!r} else {text}"]
        return [*read_length("d"), f"{target} = {text}"]


class EnumNumbers(dict[bytes, bytes]):
    """Text to the literal of the member's number."""

    def __init__(self, column: WrittenColumn) -> None:
        members = zip(member_texts(column), column.numbers or (), strict=True)
        super().__init__({text.encode(): b"%d" % number for text, number in members})
        self[_error(column)] = b"0"


class SetNumbers(dict[bytes, bytes]):
    """Text to the literal of the members' bits, created on first use."""

    def __init__(self, column: WrittenColumn) -> None:
        super().__init__()
        members = zip(member_texts(column), column.numbers or (), strict=True)
        self.bits = {text.encode(): 1 << number - 1 for text, number in members}

    def __missing__(self, text: bytes) -> bytes:
        if len(self) >= _MOST_TEXTS:
            self.clear()
        bits = sum(self.bits[member] for member in text.split(b",")) if text else 0
        # The servers compare a SET of 64 members as a signed number, and accept one.
        literal = self[text] = b"%d" % (bits - (1 << 64) if bits >> 63 else bits)
        return literal


class ByNumber(EnumSet):
    """ENUM and SET, written and compared by the numbers of their members downstream."""

    def numbers(self, column: WrittenColumn) -> dict[str, EnumNumbers | SetNumbers]:
        """Return the names that the generated code needs in addition to ``names``."""
        return {_numbers(column): (EnumNumbers if column.code == ENUM else SetNumbers)(column)}

    def literal(self, column: Column, target: str, branches: int) -> Lines:
        return [*read_length("d"), f"{target} = {_numbers(column)}[d]"]

    def parameter(self, column: Column, target: str, branches: int) -> Parameter:
        return Parameter(LONGLONG, [*self.literal(column, "d", branches), f"{target} = pack_q(int(d))"])


class AsText(EnumSet):
    """ENUM and SET, written into a column of text."""

    def literal(self, column: Column, target: str, branches: int) -> Lines:
        """Index 0 is ``''``, as servers show it."""
        lines = [*read_length("d"), f'{target} = b"\'" + d.replace(b"\'", b"\'\'") + b"\'"']
        return [*lines, f"if d == {_error(column)!r}: {target} = b\"''\""] if column.code == ENUM else lines

    def parameter(self, column: Column, target: str, branches: int) -> Parameter:
        lines = [*read_length("d"), counted_value(target)]
        if column.code == ENUM:
            lines.append(f"if d == {_error(column)!r}: {target} = b'\\0'")
        return Parameter(STRING, lines)

    def predicate(self, column: Column, quoted: bytes) -> tuple[bytes, bytes]:
        """Compares bytes, since two members may be equal in the column's collation."""
        return text_predicate(quoted, b"utf8mb4")


def _numbers(column: Column) -> str:
    return f"numbers_{column.name.encode().hex()}"


def _error(column: Column) -> bytes:
    return error_value(column).encode()
