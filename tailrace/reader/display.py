"""Epochs and rows as lines of text, or as one JSON object each."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from schemas.counted import counted
from schemas.wire.epoch import EpochCommitted
from tailrace.reader.rows import Image, Row

# Of one value, in lines for people.
_SHOWN = 200
_OPS = {"c": "insert", "u": "update", "d": "delete"}


def epoch_json(epoch: EpochCommitted) -> str:
    """All fields of an epoch's record; see ``schemas/epoch.avsc``."""
    return _json({"type": "epoch", **asdict(epoch)})


def row_json(epoch: EpochCommitted, row: Row) -> str:
    """All fields of a row. Bytes are ``{"hex": …}``; decimals are strings, since JSON readers round numbers."""
    return _json({"type": "row", "epoch": epoch.epoch, "seq": row.seq, **asdict(row)})


def _json(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, Decimal):
        return f"{value:f}"
    raise TypeError(type(value).__name__)


def epoch_text(epoch: EpochCommitted) -> str:
    """An epoch's head: number, upstream commit time, GTIDs, position, counts; then its DDL."""
    gtids = epoch.first_gtid or "no GTID"
    if epoch.last_gtid != epoch.first_gtid:
        gtids += f" … {epoch.last_gtid}"
    times = "" if not epoch.transactions else f"  {_moment(epoch.last_commit_ms)}"
    counts = f"{counted(epoch.rows, 'row')} in {counted(epoch.transactions, 'transaction')}"
    lines = [f"epoch {epoch.epoch}{times}  {gtids}  {epoch.source_file}:{epoch.source_pos}  {counts}"]
    if epoch.ddl is not None:
        database = f" in {epoch.ddl.default_db}" if epoch.ddl.default_db else ""
        lines += [f"  DDL{database}: {_visible(epoch.ddl.statement)}"]
    return "\n".join(lines)


def row_text(row: Row) -> str:
    """A row: number, operation, table, key, source; then its images."""
    source = row.source
    place = " ".join(filter(None, (source["gtid"], f"{source['file']}:{source['pos']}")))
    key = f" {_image(row.key)}" if row.key else ""
    lines = [f"  {row.seq} {_OPS.get(row.op, row.op)} {row.db}.{row.table}{key}  [{place}]"]
    lines += [f"    - {_image(row.before)}"] if row.before is not None else []
    lines += [f"    + {_image(row.after)}"] if row.after is not None else []
    return "\n".join(lines)


def _image(image: Image) -> str:
    return " ".join(f"{_visible(name)}={_value(value)}" for name, value in image.items())


def _value(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, dict):
        # A JSON document with the types that its text does not tell.
        value = value["text"]
    if isinstance(value, bytes):
        shown = value[:_SHOWN].hex()
        return f"x'{shown}'" if len(value) <= _SHOWN else f"x'{shown}…' ({len(value):,} bytes)"
    if isinstance(value, str):
        # Control characters of a value must not reach a terminal.
        shown = json.dumps(_visible(value[:_SHOWN]), ensure_ascii=False)
        return shown if len(value) <= _SHOWN else f'{shown[:-1]}…" ({len(value):,} characters)'
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _visible(text: str) -> str:
    """The text with what is no printable character written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
