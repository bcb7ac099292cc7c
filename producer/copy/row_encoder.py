"""Encodes rows of a SELECT: for each table structure, a generated function makes the Kafka key and the Avro bytes.

The rows are packets of the text protocol, in which each value is a length and a text, or the byte 0xfb for NULL. The
Avro bytes are those that ``producer.decode.row_decoder`` makes of the same row in the binlog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from struct import Struct
from typing import Any, NamedTuple

from schemas.codegen import compile_function, indent
from schemas.errors import DecodeError, Where
from schemas.gtid.sets import Flavor
from schemas.quote import quoted
from schemas.sql.literals import SESSION_SETUP
from schemas.structure import Column, TableStructure
from schemas.types import codec_of, constants_of, union_tags
from schemas.types.codec import NULL_MARK
from schemas.varint import VARINT, encode, encode_bytes, encode_long
from schemas.wire.rows import key_prefix

Append = Callable[[bytes], object]

#: b, p, end, add_key, add_after -> p; see RowEncoder.packets
Encode = Callable[[bytes, int, int, Append, Append], int]

#: bytes before a packet's content: its size and its number
PACKET_HEADER = 4
#: the size of a packet whose content continues in the next one
MAX_PACKET = 0xFFFFFF
#: the least first byte of a packet that is the end of the rows or an error
LEAST_END = 0xFE

# The branch of the union that an `after` begins with.
_ROW = b"\x02"
_LAST_SEQ = len(VARINT) // 2
_REFUSED = (DecodeError, ValueError, LookupError, OverflowError)


def session_setup(flavor: Flavor) -> tuple[str, ...]:
    """The SET statements for a connection that selects ``RowEncoder.expressions``.

    The server sends text in its column's own character set, and times in UTC. No limit of rows or time is left that
    would end the SELECT. Literals of ``schemas.sql.literals`` can be used.
    """
    limits = "sql_select_limit=18446744073709551615, sql_big_selects=1"
    # The lists of typed scalars in JSON documents; see schemas/types/json_select.py.
    lists = ", max_execution_time=0, group_concat_max_len=4294967295"
    own = lists if flavor == "mysql" else ", max_statement_time=0"
    return (*SESSION_SETUP, f"SET SESSION character_set_results=NULL, {limits}{own}")


class RowEncoder:
    """Encodes the rows of one structure.

    Args:
        structure: as a TABLE_MAP or ``predicted`` describes it, with all columns in its images.

    Attributes:
        expressions: what to select.
        field_count: the number of expressions.

    Raises:
        DecodeError: TR401, a column type that cannot be encoded.
    """

    def __init__(self, structure: TableStructure) -> None:
        if not structure.is_full:
            raise ValueError(f"row images of {structure.name} lack columns")
        expressions = [text for column in structure.columns for text in _expressions(column)]
        self.structure = structure
        self.expressions = ", ".join(expressions)
        self.field_count = len(expressions)

    def packets(self, b: bytes, p: int, end: int, add_key: Append, add_after: Append) -> int:
        """Encode the rows in the packets from ``b[p]`` on.

        It stops at ``end``, or at a packet that is not whole, that continues in the next one, or that is not a row.
        Returns where it stopped.

        Args:
            add_key, add_after: called with each row's Kafka key, and its ``after`` with the branch of the union.

        Raises:
            DecodeError: TR405, they are not rows of ``expressions``; TR417, a JSON document has bytes of a type that
                SQL cannot create again.
        """
        try:
            return self._packets(b, p, end, add_key, add_after)
        except _REFUSED as error:
            raise self._located(error) from error

    def row(self, b: bytes, add_key: Append, add_after: Append) -> None:
        """Encode one row, which comes without the headers of its packets; see ``packets``."""
        try:
            self._row(b, 0, len(b), add_key, add_after)
        except _REFUSED as error:
            raise self._located(error) from error

    def _located(self, error: Exception) -> DecodeError:
        where = Where(table=self.structure.name)
        if isinstance(error, DecodeError):
            return error.but(where=where)
        return DecodeError(
            "TR405",
            f"a row of a copy cannot be read: {error or type(error).__name__}",
            where=where,
            hint="if the table was not changed meanwhile, report it with SHOW CREATE TABLE",
        )

    @cached_property
    def _packets(self) -> Encode:
        packet = [
            f"n, f = read_head(b, p); n &= {MAX_PACKET}; e = p + {PACKET_HEADER} + n",
            f"if e > end or f >= {LEAST_END} or n == {MAX_PACKET}: break",
            f"p += {PACKET_HEADER}",
        ]
        loop = [f"while p + {PACKET_HEADER} < end:", *indent([*packet, *self._row_lines()]), "return p"]
        return self._compiled("packets", loop)

    @cached_property
    def _row(self) -> Encode:
        return self._compiled("row", ["e = end", *self._row_lines(), "return p"])

    def _compiled(self, name: str, body: list[str]) -> Encode:
        structure = self.structure
        names: dict[str, Any] = {
            "VARINT": VARINT,
            "encode_varint": encode,
            "from_bytes": int.from_bytes,
            "read_head": Struct("<IB").unpack_from,
            "KEY": key_prefix(structure),
        }
        for i, column in enumerate(structure.columns):
            names |= codec_of(column).names
            names |= constants_of(column, f"a{i}")
        parameters = "b, p, end, add_key, add_after"
        return compile_function(name, parameters, body, names, f"<{name} of {structure.name}>")

    def _row_lines(self) -> list[str]:
        """Lines that encode the row at ``b[p]``, which ends before ``b[e]``."""
        columns = self.structure.columns
        place = {column.name: i for i, column in enumerate(columns)}
        key = " + ".join(["KEY", *(f"a{place[name]}" for name in self.structure.key)])
        values = ", ".join(f"a{i}" for i in range(len(columns)))
        return [
            *(line for i, column in enumerate(columns) for line in _value_lines(column, f"a{i}")),
            "if p != e: raise ValueError('its values and its packet have different sizes')",
            f"add_key({key})",
            f"add_after(b''.join(({_ROW!r}, {values})))",
        ]


def _value_lines(column: Column, target: str) -> list[str]:
    lines = codec_of(column).encode(column, target, [repr(tag) for tag in union_tags(column)])
    if not column.nullable:
        return lines
    fields = len(_expressions(column))
    return [f"if b[p] == {NULL_MARK}: {target} = b'\\0'; p += {fields:d}", "else:", *indent(lines)]


def _expressions(column: Column) -> list[str]:
    if column.is_row_hash:
        # Servers do not show it, and the downstream computes its own.
        return ["NULL" if column.nullable else "0"]
    return codec_of(column).select(column, quoted(column.name))


class CopySource(NamedTuple):
    """The `source` record of a copy's rows, without their numbers, and the envelope's `ts_ms`.

    Attributes:
        server_id: the upstream's.
        file, pos: the epoch's place in the upstream's binlog.
        read_ms: when the rows were read, ms since 1970.
        published_ms: when they are published.
    """

    db: str
    table: str
    server_id: int
    file: str
    pos: int
    read_ms: int
    published_ms: int


def copied_values(
    afters: Iterable[bytes], header: bytes, epoch: int, first_seq: int, source: CopySource
) -> list[bytes]:
    """The values of a copy's rows.

    Args:
        afters: of ``RowEncoder``.
        header: ``value_header`` of the structure.
        epoch: its number.
        first_seq: the number in the epoch of the first row.
    """
    begin = header + b"\x02r"
    no_flags, no_gtid = encode_long(0), b"\0"
    end = b"".join(
        (
            encode_long(epoch),
            no_flags,
            encode_bytes(source.db.encode()),
            encode_bytes(source.table.encode()),
            encode_long(source.server_id),
            no_gtid,
            encode_bytes(source.file.encode()),
            *map(encode_long, (source.pos, source.read_ms, source.published_ms)),
        )
    )
    # `before` is null.
    return [
        b"".join((begin, after, b"\0", VARINT[seq << 1] if seq < _LAST_SEQ else encode(seq << 1), end))
        for seq, after in enumerate(afters, first_seq)
    ]
