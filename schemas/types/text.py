"""CHAR, VARCHAR and TEXT. Avro string, or Avro bytes if the text is not valid or cannot be decoded here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.binlog.mariadb_zlib import inflate_column
from schemas.charsets.text import text_of
from schemas.structure import Column
from schemas.types.binary import read_value, value_field
from schemas.types.codec import Codec, Lines, read_counted_field, read_length, text_predicate
from schemas.types.parameter import COUNTED, STRING, Parameter, counted_value
from schemas.varint import VARINT, encode_bytes

#: length prefixes with their union tag: STRING_PREFIX[tag][length]
STRING_PREFIX: dict[bytes, list[bytes]] = {
    tag: [tag + VARINT[length << 1] for length in range(1 << 14)] for tag in (b"\x00", b"\x02")
}


def utf8_text(data: bytes, string_tag: bytes, bytes_tag: bytes) -> bytes:
    """Encode UTF-8 as an Avro string, or as Avro bytes if it is not valid."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return bytes_tag + encode_bytes(data)
    return string_tag + encode_bytes(data)


def latin1_text(data: bytes, string_tag: bytes, bytes_tag: bytes) -> bytes:
    """Encode text in MySQL's latin1, in which every byte is valid."""
    return string_tag + encode_bytes(text_of(data, "latin1").encode())


def foreign_text(data: bytes, string_tag: bytes, bytes_tag: bytes) -> bytes:
    """Encode text of a charset that only the servers can decode as its own bytes; the schema has the charset."""
    return bytes_tag + encode_bytes(data)


def ascii_based_text(data: bytes, string_tag: bytes, bytes_tag: bytes) -> bytes:
    """Encode ASCII as an Avro string; other text, which only the servers can decode, as Avro bytes."""
    return (string_tag if data.isascii() else bytes_tag) + encode_bytes(data)


_UTF8 = {"utf8", "utf8mb3", "utf8mb4"}
# In these charsets bytes below 0x80 are not always ASCII characters.
_NOT_ASCII_BASED = {"ucs2", "utf16", "utf16le", "utf32", "swe7"}
_SHIFTED_BACKSLASH = {"sjis", "cp932"}


def conversion(charset: str) -> str:
    if charset in _UTF8:
        return "utf8_text"
    if charset in _NOT_ASCII_BASED | _SHIFTED_BACKSLASH:
        return "foreign_text"
    return "latin1_text" if charset == "latin1" else "ascii_based_text"


class Text(Codec):
    """Character types."""

    names: Mapping[str, Any] = {
        "inflate_column": inflate_column,
        "read_counted_field": read_counted_field,
        "STRING_PREFIX_0": STRING_PREFIX[b"\x00"],
        "STRING_PREFIX_1": STRING_PREFIX[b"\x02"],
        "utf8_text": utf8_text,
        "latin1_text": latin1_text,
        "foreign_text": foreign_text,
        "ascii_based_text": ascii_based_text,
    }

    def avro(self, column: Column) -> list[Any]:
        """A union: string, or bytes in the column's charset."""
        return ["string", "bytes"]

    def decode(self, column: Column, target: str, tags: list[str]) -> Lines:
        return self._converted(read_value(column), column, target, tags)

    def encode(self, column: Column, target: str, tags: list[str]) -> Lines:
        """The text is in the column's character set, a CHAR without its padding, a COMPRESSED column uncompressed."""
        return self._converted(value_field(column), column, target, tags)

    def _converted(self, lines: Lines, column: Column, target: str, tags: list[str]) -> Lines:
        """The lines, which set ``d`` and ``l``, and the conversion of ``d``.

        ASCII, the most frequent case, needs one test and one concatenation.
        """
        convert = f"{conversion(column.charset)}(d, {tags[0]}, {tags[1]})"
        if column.charset in _NOT_ASCII_BASED | _SHIFTED_BACKSLASH:
            return [*lines, f"{target} = {convert}"]
        table = "STRING_PREFIX_1" if column.nullable else "STRING_PREFIX_0"
        return [
            *lines,
            f"{target} = {table}[l] + d if l < 16384 and d.isascii() else {convert}",
        ]

    def literal(self, column: Column, target: str, branches: int) -> Lines:
        introducer = f"_{column.charset} X'".encode()
        return [
            *read_length("d"),
            f"if t == {branches * 2}:",
            '    if b"\'" in d: d = d.replace(b"\'", b"\'\'")',
            f'    {target} = b"\'" + d + b"\'"',
            f'else: {target} = {introducer!r} + d.hex().encode() + b"\'"',
        ]

    def parameter(self, column: Column, target: str, branches: int) -> Parameter:
        """Bytes in another character set than the session's have no form."""
        only = f"if t != {branches * 2}: raise NoParameter"
        return Parameter(STRING, [*read_length("d"), only, counted_value(target)], COUNTED)

    def value(self, column: Column, target: str, branches: int) -> Lines:
        """Text, or bytes that only the servers can decode."""
        return [*read_length("d"), f"{target} = d.decode() if t == {branches * 2} else d"]

    def predicate(self, column: Column, quoted: bytes) -> tuple[bytes, bytes]:
        # In the charset of the upstream's column: in Unicode all bytes without a character are the same question mark.
        return text_predicate(quoted, b"utf8mb4" if column.charset in _UTF8 else column.charset.encode())
