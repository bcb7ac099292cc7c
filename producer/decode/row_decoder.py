"""Decodes rows: for each table structure and kind of rows event, a generated function makes the Kafka records.

The function walks the event's rows and adds a key and a value for each: the key and the envelope of
``schemas.wire.avro_schema``, in Avro bytes. It is straight code without calls per value, save for the types that
need one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from struct import Struct, calcsize
from typing import Any, NamedTuple

from producer.decode.documents import json_avro, json_patched
from producer.epochs.open_epoch import Headers
from schemas.codegen import compile_function, indent
from schemas.errors import DecodeError
from schemas.structure import Column, TableStructure
from schemas.types import codec_of, constants_of, union_tags
from schemas.types.binary import COMPRESSED, read_counted
from schemas.types.codec import NumberLine
from schemas.types.json_type import JSON
from schemas.varint import VARINT, encode
from schemas.wire.avro_schema import fingerprint_of
from schemas.wire.rows import key_prefix, value_header

Append = Callable[[bytes], None]

#: the parameters of ``_PARAMETERS`` -> seq, p; see RowDecoder
Decode = Callable[
    [bytes, int, int, int, bytes, bytes, bytes, bytes, Append, Append, dict[int, Headers]], tuple[int, int]
]

#: the bytes that name a structure's schema on the wire
SchemaName = Callable[[TableStructure], bytes]

_BYTES_AT_A_TIME = 64 << 10  # bytes; most events are smaller

_READ = re.compile(r"read_(\w+)\(b, p\)")
_LITTLE = "'little'"
_AVRO_PARAMETERS = "epoch_number, table_source, table_source_moved, event_source"
_PARAMETERS = f"b, p, end, seq, {_AVRO_PARAMETERS}, add_key, add_value, headers"


class RowDecoder:
    """The three decoders of one structure.

    Each returns the number of the next row, and where it begins: where the event's rows end, or beyond, if the event
    is damaged. Its parameters:

    - ``b``: the event's bytes.
    - ``p``, ``end``: where its first row image begins; where to stop, after the first row that ends there or beyond.
    - ``seq``: the number of the first row in the epoch.
    - ``epoch_number``, ``table_source``, ``table_source_moved``, ``event_source``: Avro bytes: the epoch's number;
      ``source.flags`` to ``source.table``; the same for the halves of a key change; and all of ``source`` behind that.
    - ``add_key``, ``add_value``: called with each record's key and value.
    - ``headers``: gets the headers of the halves of a key change, by their number.

    Attributes:
        fingerprint: names the structure's schema on the wire: its fingerprint, or its id in a registry.
        bytes_at_a_time: how many bytes of an event are decoded at a time: two bytes may be a row, and one byte of a
            compressed column a thousand.
    """

    def __init__(self, structure: TableStructure, schema_name: SchemaName = fingerprint_of) -> None:
        self.structure = structure
        self.fingerprint = schema_name(structure)
        self.header = value_header(self.fingerprint)
        packed = any(column.code in COMPRESSED for column in structure.columns)
        self.bytes_at_a_time = 1 if packed else _BYTES_AT_A_TIME

    @cached_property
    def write(self) -> Decode:
        return self.decode("write", Images.full(self.structure))

    @cached_property
    def update(self) -> Decode:
        return self.decode("update", Images.full(self.structure))

    @cached_property
    def delete(self) -> Decode:
        return self.decode("delete", Images.full(self.structure))

    def decode(self, kind: str, images: Images, diffs: bool = False) -> Decode:
        """The decoder of one kind of events.

        Args:
            kind: ``write``, ``update`` or ``delete``.
            images: the columns that these events have. Columns missing from the after image keep their before values.
            diffs: of PARTIAL_UPDATE_ROWS, where JSON documents come as diffs.
        """
        structure = self.structure
        if kind == "write":
            body = _write(structure, images)
        elif kind == "delete":
            body = _delete(structure, images)
        else:
            body = _update(structure, images, diffs)
        return _compile(structure, self.header, kind, body)


class ImageLacksColumns(DecodeError):
    """TR413: row images lack what is needed to know what happened to which row."""


class Images(NamedTuple):
    """The columns that the row images of an event have, as bits by their position in the table."""

    before: int
    after: int

    @classmethod
    def full(cls, structure: TableStructure) -> Images:
        """Images with all columns."""
        every = (1 << len(structure.columns)) - 1
        return cls(every, every)


def _compile(structure: TableStructure, header: bytes, kind: str, body: list[str]) -> Decode:
    names: dict[str, Any] = {
        "VARINT": VARINT,
        "encode_varint": encode,
        "from_bytes": int.from_bytes,
        "KEY": key_prefix(structure),
        "CREATE": header + b"\x02c\x02",
        "UPDATE": header + b"\x02u\x02",
        # `after` is null, then comes `before`
        "DELETE": header + b"\x02d\x00\x02",
        "lacks_document": lacks_document,
    }
    for i, column in enumerate(structure.columns):
        names |= codec_of(column).names
        for prefix in ("a", "o"):
            names |= constants_of(column, f"{prefix}{i}")
    names |= {"json_avro": json_avro, "json_patched": json_patched}
    for form in set(_READ.findall("\n".join(body))):
        names[f"read_{form}"] = Struct("<" + form).unpack_from
    return compile_function(kind, _PARAMETERS, body, names, f"<{kind} rows of {structure.name}>")


def _image(structure: TableStructure, present: int, prefix: str, partial: int | None = None) -> list[str]:
    """Lines that read one row image at ``b[p]`` into ``<prefix>0, <prefix>1, …``.

    Args:
        present: the columns that it has, as bits; only they have a bit in the image's own map of NULLs.
        partial: of PARTIAL_UPDATE_ROWS: the columns that the before image has. That keeps its documents in
            ``j0, j1, …``; in the after image the bits of ``x`` say which documents are diffs of those.
    """
    documents = rank = 0
    pieces: list[list[str]] = [_nulls(present.bit_count())]
    for i, column in enumerate(structure.columns):
        # Documents have a number each, whether the images have them or not.
        document = documents
        documents += column.code == JSON
        if not present >> i & 1:
            continue
        target = f"{prefix}{i}"
        tags = [repr(tag) for tag in union_tags(column)]
        decode = codec_of(column).decode(column, target, tags)
        if partial is not None and column.code == JSON:
            if prefix == "o":
                pieces.append([f"j{document} = None"])
                decode.append(f"j{document} = d")
            else:
                known = f"j{document}" if partial >> i & 1 else "lacks_document()"
                diffs = [*read_counted(4), f"{target} = json_patched({known}, d, {tags[0]}, {tags[1]})"]
                decode = [f"if x & {1 << document}:", *indent(diffs), "else:", *indent(decode)]
        pieces.append(_unless_null(column, target, rank, decode))
        rank += 1
    return list(_heads_together(pieces))


def _nulls(columns: int) -> list[str]:
    """The line that reads which of so many columns are NULL, as bits of ``n``."""
    size = (columns + 7) // 8
    form = {1: "B", 2: "H", 4: "I", 8: "Q"}.get(size)
    line = f"n = {'b[p]' if size == 1 else f'from_bytes(b[p:p+{size}], {_LITTLE})'}; p += {size}"
    return [NumberLine(line, form, "n", whole=True) if form else line]


def _unless_null(column: Column, target: str, rank: int, decode: list[str]) -> list[str]:
    """The lines that read a column's value, unless bit ``rank`` of ``n`` says that it is NULL."""
    if not column.nullable:
        return decode
    return [f"if n & {1 << rank}: {target} = b'\\0'", "else:", *indent(decode)]


def lacks_document() -> None:
    """A JSON document that is not in the before image is changed by a diff. Raises ImageLacksColumns."""
    raise ImageLacksColumns(
        "TR413", "a row image has a diff of a JSON document, and the document is not in it"
    )


def _heads_together(pieces: list[list[str]]) -> Iterator[str]:
    """The pieces' lines, with one read for the numbers of neighbors that lie side by side."""
    at = 0
    while at < len(pieces):
        heads: list[NumberLine] = []
        for piece in pieces[at:]:
            if not isinstance(head := piece[0], NumberLine):
                break
            heads.append(head)
            if not head.whole:
                break
        if len(heads) < 2:
            yield from pieces[at]
            at += 1
            continue
        form = "".join(head.form for head in heads)
        # The values that come out together are used one after the other, under the name that their lines know.
        yield f"{', '.join(f'{head.name}{k}' for k, head in enumerate(heads))} = read_{form}(b, p)"
        yield f"p += {calcsize('<' + form)}"
        for k, head in enumerate(heads):
            yield f"{head.name} = {head.name}{k}"
            yield from pieces[at + k][1:]
        at += len(heads)


def _after_partial(structure: TableStructure, images: Images) -> list[str]:
    """``_image`` of what is behind, in front of which stands which of the documents come as diffs.

    Source: MySQL sql/rpl_record.cc, ``unpack_row``.
    """
    count = sum(column.code == JSON for column in structure.columns)
    size = (count + 7) // 8
    return [
        "if b[p] > 1: raise ValueError('a row image with unknown options')",
        "x = 0; p += 1",
        f"if b[p-1]: x = from_bytes(b[p:p+{size}], 'little'); p += {size}",
        *_image(structure, images.after, "a", partial=images.before),
    ]


def _parts(structure: TableStructure, columns: tuple[Column, ...], prefix: str) -> str:
    index_of = {column.name: i for i, column in enumerate(structure.columns)}
    return ", ".join(f"{prefix}{index_of[column.name]}" for column in columns)


def _key(structure: TableStructure, prefix: str) -> str:
    index_of = {column.name: i for i, column in enumerate(structure.columns)}
    parts = " + ".join(f"{prefix}{index_of[name]}" for name in structure.key)
    return f"KEY + {parts}" if parts else "KEY"


def _same_key(structure: TableStructure) -> str:
    index_of = {column.name: i for i, column in enumerate(structure.columns)}
    return " and ".join(f"a{index_of[name]} == o{index_of[name]}" for name in structure.key)


# What is behind a value's images, of an ordinary row and of half a key change.
_HERE, _MOVED = (
    f"(VARINT[seq << 1] if seq < 65536 else encode_varint(seq << 1)), epoch_number, {table}, event_source"
    for table in ("table_source", "table_source_moved")
)


def _append(key: str, parts: list[str], source: str) -> list[str]:
    return [
        f"add_key({key})",
        f"add_value(b''.join(({', '.join(parts)}, {source})))",
        "seq += 1",
    ]


def _create_parts(structure: TableStructure) -> list[str]:
    return ["CREATE", _parts(structure, structure.after_image, "a"), "b'\\0'"]


def _delete_parts(structure: TableStructure) -> list[str]:
    return ["DELETE", _parts(structure, structure.before_image, "o")]


def _loop(body: list[str]) -> list[str]:
    return ["while p < end:", *indent(body), "return seq, p"]


def _write(structure: TableStructure, images: Images) -> list[str]:
    record = _append(_key(structure, "a"), _create_parts(structure), _HERE)
    return _loop([*_image(structure, images.after, "a"), *record])


def _delete(structure: TableStructure, images: Images) -> list[str]:
    record = _append(_key(structure, "o"), _delete_parts(structure), _HERE)
    return _loop([*_image(structure, images.before, "o"), *record])


def _unchanged(structure: TableStructure, images: Images) -> list[str]:
    """Lines for the columns that the after image is published with, and that the event has before only."""
    after = {column.name for column in structure.after_image}
    return [
        f"a{i} = o{i}"
        for i, column in enumerate(structure.columns)
        if column.name in after and not images.after >> i & 1
    ]


def _update(structure: TableStructure, images: Images, diffs: bool) -> list[str]:
    """An UPDATE that changes the key becomes delete and create, so that each key's history stays whole."""
    before = _image(structure, images.before, "o", partial=images.before if diffs else None)
    after = _after_partial(structure, images) if diffs else _image(structure, images.after, "a")
    both = [*before, *after, *_unchanged(structure, images)]
    create, delete = _create_parts(structure), _delete_parts(structure)
    update = ["UPDATE", create[1], "b'\\2'", delete[1]]
    if not structure.key:
        return _loop([*both, *_append("KEY", update, _HERE)])
    return _loop(
        [
            *both,
            f"if {_same_key(structure)}:",
            *indent(_append(_key(structure, "a"), update, _HERE)),
            "else:",
            f"    k = {_key(structure, 'a')}; ko = {_key(structure, 'o')}",
            "    headers[seq] = [('__debezium.newkey', k)]; headers[seq + 1] = [('__debezium.oldkey', ko)]",
            *indent(_append("ko", delete, _MOVED)),
            *indent(_append("k", create, _MOVED)),
        ]
    )
