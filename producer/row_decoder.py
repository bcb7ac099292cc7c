"""Where a row is decoded: for each table structure, one generated function from a rows event to Kafka records.

The function walks the event's rows and appends ``(key, value)`` pairs: the key and the envelope of
``schemas.avro_schema``, in Avro bytes. It is straight code without calls per value, save for the types that
need one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from struct import Struct, calcsize
from typing import Any

from schemas.avro_schema import fingerprint_of
from schemas.codegen import compile_function, indent
from schemas.sql import key_prefix
from schemas.structure import TableStructure
from schemas.types import codec_of, constants_of, union_tags
from schemas.types.binary import read_counted
from schemas.types.codec import Head
from schemas.types.json_diff import json_patched
from schemas.types.json_type import JSON
from schemas.varint import VARINT, encode
from schemas.wire import value_header

#: (key, value), or (key, value, headers) for the halves of a key change
Record = tuple[bytes, bytes] | tuple[bytes, bytes, list[tuple[str, bytes]]]

#: (b, p, end, seq, epoch, table, moved, place, append) -> seq; see RowDecoder
Decode = Callable[[bytes, int, int, int, bytes, bytes, bytes, bytes, Callable[[Record], None]], int]

#: the bytes that name a structure's schema on the wire
SchemaName = Callable[[TableStructure], bytes]

_READ = re.compile(r"read_(\w+)\(b, p\)")
_PARAMETERS = "b, p, end, seq, epoch, table, moved, place, append"


class RowDecoder:
    """The three decoders of one structure.

    Each takes ``(b, p, end, seq, epoch, table, moved, place, append)``: the event's bytes, where its first row
    image begins and where the last one ends, the number of its first row in the epoch; then, as Avro bytes, the
    epoch's number, ``source.flags`` to ``source.table`` (``moved``: for the halves of a key change), and
    everything behind; and what to call with each record. They return the number of the next row.

    ``fingerprint`` names the structure's schema on the wire: its fingerprint, or its id in a registry.
    """

    def __init__(self, structure: TableStructure, schema_name: SchemaName = fingerprint_of) -> None:
        self.structure = structure
        self.fingerprint = schema_name(structure)
        self.header = header = value_header(self.fingerprint)
        self.write = _compile(structure, header, "write", _write(structure))
        self.update = _compile(structure, header, "update", _update(structure))
        self.delete = _compile(structure, header, "delete", _delete(structure))


def partial_update_decoder(decoder: RowDecoder) -> Decode:
    """The decoder of PARTIAL_UPDATE_ROWS: as ``RowDecoder.update``, where JSON documents come as diffs."""
    structure = decoder.structure
    return _compile(structure, decoder.header, "partial_update", _update(structure, partial=True))


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
        "json_patched": json_patched,
    }
    for i, column in enumerate(structure.columns):
        names |= codec_of(column).names
        for prefix in ("a", "o"):
            names |= constants_of(column, f"{prefix}{i}")
    for form in set(_READ.findall("\n".join(body))):
        names[f"read_{form}"] = Struct("<" + form).unpack_from
    return compile_function(kind, _PARAMETERS, body, names, f"<{kind} rows of {structure.name}>")


def _image(structure: TableStructure, prefix: str, partial: bool = False) -> list[str]:
    """Lines that read one full row image at ``b[p]`` into ``<prefix>0, <prefix>1, …``.

    Args:
        partial: of PARTIAL_UPDATE_ROWS: the before image keeps its documents in ``j0, j1, …``; in the after
            image the bits of ``x`` say which documents are diffs of those.
    """
    documents = 0
    size = (len(structure.columns) + 7) // 8
    form = {1: "B", 2: "H", 4: "I", 8: "Q"}.get(size)
    nullmap = "b[p]" if size == 1 else f"from_bytes(b[p:p+{size}], 'little')"
    line = f"n = {nullmap}; p += {size}"
    pieces: list[list[str]] = [[Head(line, form, "n", whole=True) if form else line]]
    for i, column in enumerate(structure.columns):
        target = f"{prefix}{i}"
        tags = [repr(tag) for tag in union_tags(column)]
        decode = codec_of(column).decode(column, target, tags)
        if partial and column.code == JSON:
            if prefix == "o":
                pieces.append([f"j{documents} = None"])
                decode.append(f"j{documents} = d")
            else:
                diffs = [*read_counted(4), f"{target} = json_patched(j{documents}, d, {tags[0]}, {tags[1]})"]
                decode = [f"if x & {1 << documents}:", *indent(diffs), "else:", *indent(decode)]
            documents += 1
        if column.nullable:
            decode = [f"if n & {1 << i}: {target} = b'\\0'", "else:", *indent(decode)]
        pieces.append(decode)
    return list(_heads_together(pieces))


def _heads_together(pieces: list[list[str]]) -> Iterator[str]:
    """The pieces' lines, with one read for the numbers of neighbours that lie side by side."""
    at = 0
    while at < len(pieces):
        heads: list[Head] = []
        for piece in pieces[at:]:
            if not isinstance(head := piece[0], Head):
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


def _after_partial(structure: TableStructure) -> list[str]:
    """``_image`` of what is behind, in front of which stands which of the documents come as diffs.

    Source: MySQL sql/rpl_record.cc, ``unpack_row``.
    """
    count = sum(column.code == JSON for column in structure.columns)
    size = (count + 7) // 8
    return [
        "if b[p] > 1: raise ValueError('a row image with unknown options')",
        "x = 0; p += 1",
        f"if b[p-1]: x = from_bytes(b[p:p+{size}], 'little'); p += {size}",
        *_image(structure, "a", partial=True),
    ]


def _parts(structure: TableStructure, prefix: str) -> str:
    return ", ".join(f"{prefix}{i}" for i in range(len(structure.columns)))


def _key(structure: TableStructure, prefix: str) -> str:
    place = {column.name: i for i, column in enumerate(structure.columns)}
    parts = " + ".join(f"{prefix}{place[name]}" for name in structure.key)
    return f"KEY + {parts}" if parts else "KEY"


def _same_key(structure: TableStructure) -> str:
    place = {column.name: i for i, column in enumerate(structure.columns)}
    return " and ".join(f"a{place[name]} == o{place[name]}" for name in structure.key)


_SEQ = "(VARINT[seq << 1] if seq < 65536 else encode_varint(seq << 1))"


def _append(key: str, parts: list[str], table: str, headers: str = "") -> list[str]:
    more = f", {headers}" if headers else ""
    return [
        f"append(({key}, b''.join(({', '.join(parts)}, {_SEQ}, epoch, {table}, place)){more}))",
        "seq += 1",
    ]


def _create_parts(structure: TableStructure, prefix: str) -> list[str]:
    return ["CREATE", _parts(structure, prefix), "b'\\0'"]


def _delete_parts(structure: TableStructure, prefix: str) -> list[str]:
    return ["DELETE", _parts(structure, prefix)]


def _loop(body: list[str]) -> list[str]:
    overrun = "if p != end: raise IndexError('a row image overruns its event')"
    return ["while p < end:", *indent(body), overrun, "return seq"]


def _write(structure: TableStructure) -> list[str]:
    record = _append(_key(structure, "a"), _create_parts(structure, "a"), "table")
    return _loop([*_image(structure, "a"), *record])


def _delete(structure: TableStructure) -> list[str]:
    record = _append(_key(structure, "o"), _delete_parts(structure, "o"), "table")
    return _loop([*_image(structure, "o"), *record])


def _update(structure: TableStructure, partial: bool = False) -> list[str]:
    """An UPDATE that changes the key becomes delete and create, so that each key's history stays whole."""
    if partial:
        images = [*_image(structure, "o", partial=True), *_after_partial(structure)]
    else:
        images = [*_image(structure, "o"), *_image(structure, "a")]
    update = ["UPDATE", _parts(structure, "a"), "b'\\2'", _parts(structure, "o")]
    if not structure.key:
        return _loop([*images, *_append("KEY", update, "table")])
    return _loop(
        [
            *images,
            f"if {_same_key(structure)}:",
            *indent(_append(_key(structure, "a"), update, "table")),
            "else:",
            f"    k = {_key(structure, 'a')}; ko = {_key(structure, 'o')}",
            *indent(_append("ko", _delete_parts(structure, "o"), "moved", "[('__debezium.newkey', k)]")),
            *indent(_append("k", _create_parts(structure, "a"), "moved", "[('__debezium.oldkey', ko)]")),
        ]
    )
