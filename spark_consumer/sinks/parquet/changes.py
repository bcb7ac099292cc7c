"""Converts rows into the columns of change files, on the executors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa

from schemas.codegen import kept
from schemas.structure import Column, TableStructure
from schemas.types import codec_of
from schemas.types.json_type import Json
from schemas.types.text import Text
from schemas.wire.avro_schema import KEY_CHANGE, OP_AT, read_record, row_schema
from schemas.wire.row_check import compile_check
from schemas.wire.rows import HEADER_SIZE, widened
from spark_consumer.plan.plan import ApplyMode, SlicePlan
from spark_consumer.rows.render import UnknownHeader, event_of, tally, within
from spark_consumer.rows.results import ArrowRows, Result
from spark_consumer.rows.slice_rows import RangeRows

_ROWS = 2_000  # rows of one record batch
_BYTES = 4 << 20
_SIMPLE = {
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
RowImage = dict[str, Any]


@dataclass(frozen=True)
class FileColumns:
    """The columns of a structure's rows in a file.

    Attributes:
        schema: the file's schema.
        avro: the schema of the row values.
        before: the columns of a before image.
        after: the columns of an after image.
        texts: columns whose values may be bytes that are not valid in their charset.
        documents: JSON columns.
    """

    schema: pa.Schema
    avro: Any
    before: tuple[str, ...]
    after: tuple[str, ...]
    texts: frozenset[str]
    documents: frozenset[str]


@kept
def file_columns(structure: TableStructure) -> FileColumns:
    """Return the columns of a structure's rows in a file."""
    # The same as in the rows' Avro schema: an image without columns never occurs.
    before = structure.before_image or structure.after_image
    after = structure.after_image or structure.before_image
    extra = pa.map_(pa.string(), pa.binary())
    schema = pa.schema(
        [
            pa.field("op", pa.string(), nullable=False),
            pa.field("epoch", pa.int64(), nullable=False),
            pa.field("seq", pa.int64(), nullable=False),
            pa.field("gtid", pa.string()),
            pa.field("committed_at", pa.timestamp("ms", "UTC"), nullable=False),
            pa.field("key_change", pa.bool_(), nullable=False),
            pa.field("source_schema", pa.string(), nullable=False),
            pa.field("source_table", pa.string(), nullable=False),
            pa.field("before", _struct(before)),
            pa.field("after", _struct(after)),
            pa.field("before_extra", extra),
            pa.field("after_extra", extra),
        ],
        metadata={"tailrace.structure": structure.to_json()},
    )
    codecs = {column.name: codec_of(column) for column in structure.columns}
    return FileColumns(
        schema,
        fastavro.parse_schema(json.loads(row_schema(structure).text)),
        tuple(column.name for column in before),
        tuple(column.name for column in after),
        frozenset(name for name, codec in codecs.items() if isinstance(codec, Text)),
        frozenset(name for name, codec in codecs.items() if isinstance(codec, Json)),
    )


def _struct(columns: Sequence[Column]) -> pa.DataType:
    return pa.struct([pa.field(c.name, _arrow(codec_of(c).avro(c)[0])) for c in columns])


def _arrow(avro: Any) -> pa.DataType:
    if isinstance(avro, dict):
        precision, scale = avro["precision"], avro["scale"]
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    return _SIMPLE[avro]


def changes(plan: SlicePlan, rows: RangeRows) -> Iterator[Result]:
    """Yield the results for one partition's rows: a tally of all rows, and each table's rows as Arrow batches."""
    keys, values = rows.keys, rows.values
    if plan.window:
        keys, values = within(plan, plan.window, keys, values)
    yield tally(values)
    tables = {table.header: number for number, table in enumerate(plan.tables)}
    taken: dict[int, list[RowImage]] = {}
    sizes: dict[int, int] = {}
    for key, narrow in zip(keys, values, strict=True):
        value = widened(narrow)
        number = tables.get(value[:HEADER_SIZE])
        if number is None:
            raise UnknownHeader(value[:HEADER_SIZE])
        table = plan.tables[number]
        if table.mode is ApplyMode.SKIP:
            continue
        compile_check(table.structure)(key, value)
        row = decode_row(file_columns(table.structure), value)
        if event_of(value[OP_AT], KEY_CHANGE if row["key_change"] else 0) in table.dropped:
            continue
        taken.setdefault(number, []).append(row)
        sizes[number] = sizes.get(number, 0) + len(value)
        if len(taken[number]) >= _ROWS or sizes[number] >= _BYTES:
            yield _arrow_rows(plan, number, taken.pop(number))
            del sizes[number]
    for number, left in taken.items():
        yield _arrow_rows(plan, number, left)


def decode_row(columns: FileColumns, value: bytes) -> RowImage:
    """Decode a row into the columns of its file."""
    envelope = read_record(columns.avro, value[HEADER_SIZE:])
    source = envelope["source"]
    before, before_extra = _image(columns, columns.before, envelope["before"])
    after, after_extra = _image(columns, columns.after, envelope["after"])
    return {
        "op": envelope["op"],
        "epoch": source["epoch"],
        "seq": source["seq"],
        "gtid": source["gtid"],
        "committed_at": source["ts_ms"],
        "key_change": bool(source["flags"] & KEY_CHANGE),
        "source_schema": source["db"],
        "source_table": source["table"],
        "before": before,
        "after": after,
        "before_extra": before_extra,
        "after_extra": after_extra,
    }


def _image(
    columns: FileColumns, names: tuple[str, ...], image: RowImage | None
) -> tuple[RowImage | None, list[tuple[str, bytes]] | None]:
    """The columns by their real names, and what has no place in them."""
    if image is None:
        return None, None
    named = dict(zip(names, image.values(), strict=True))
    extra: list[tuple[str, bytes]] = []
    for name in columns.texts & named.keys():
        if isinstance(raw := named[name], bytes):
            named[name] = None
            extra.append((name, raw))
    for name in columns.documents & named.keys():
        if isinstance(typed := named[name], dict):
            named[name] = typed.pop("text")
            extra.append((name, json.dumps(typed, sort_keys=True).encode()))
    return named, sorted(extra) or None


def _arrow_rows(plan: SlicePlan, number: int, rows: list[RowImage]) -> ArrowRows:
    schema = file_columns(plan.tables[number].structure).schema
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema) as stream:
        stream.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
    return ArrowRows(number, out.getvalue().to_pybytes())
