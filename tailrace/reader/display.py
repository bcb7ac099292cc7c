"""Shows epochs and rows as lines of text, or as one JSON object each."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from schemas.counted import counted
from schemas.wire.epoch import BEGIN, ROWS, CopyStep, EpochCommitted
from tailrace.reader.rows import Image, Row

_SHOWN = 200  # characters or bytes of a value in text
_OPS = {"c": "insert", "u": "update", "d": "delete", "r": "read"}


def epoch_json(epoch: EpochCommitted) -> str:
    """Return all fields of an epoch's record as JSON; see ``schemas/epoch.avsc``."""
    return _json({"type": "epoch", **asdict(epoch)})


def row_json(epoch: EpochCommitted, row: Row) -> str:
    """Return all fields of a row as JSON; bytes are ``{"hex": …}``, decimals strings, since JSON readers round."""
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
    """Return an epoch's number, upstream commit time, GTIDs, position and counts as a line, its DDL as another."""
    gtids = epoch.first_gtid or "no GTID"
    if epoch.last_gtid != epoch.first_gtid:
        gtids += f" … {epoch.last_gtid}"
    times = "" if not epoch.transactions else f"  {_moment(epoch.last_commit_ms)}"
    counts = f"{counted(epoch.rows, 'row')} in {counted(epoch.transactions, 'transaction')}"
    lines = [f"epoch {epoch.epoch}{times}  {gtids}  {epoch.source_file}:{epoch.source_pos}  {counts}"]
    if epoch.copy is not None:
        table = f"{_visible(epoch.copy.db)}.{_visible(epoch.copy.table)}"
        whose = " for new channels" if epoch.for_new_channels else ""
        lines += [f"  copy of {table}{whose}: {_copy_step(epoch.copy)}"]
    if epoch.ddl is not None:
        database = f" in {epoch.ddl.default_db}" if epoch.ddl.default_db else ""
        lines += [f"  DDL{database}: {_visible(epoch.ddl.statement)}"]
    return "\n".join(lines)


def _copy_step(copy: CopyStep) -> str:
    if copy.step != ROWS:
        return f"{copy.step}{' again' if copy.again and copy.step == BEGIN else ''}"
    return f"{copy.step} after {_visible(copy.lower or 'the start')} to {_visible(copy.upper or 'the end')}"


def row_text(row: Row) -> str:
    """Return a row's number, operation, table, key and position as a line, each image as a further one."""
    source = row.source
    position = " ".join(filter(None, (source["gtid"], f"{source['file']}:{source['pos']}")))
    key = f" {_image(row.key)}" if row.key else ""
    lines = [f"  {row.seq} {_OPS.get(row.op, row.op)} {row.db}.{row.table}{key}  [{position}]"]
    lines += [f"    - {_image(row.before)}"] if row.before is not None else []
    lines += [f"    + {_image(row.after)}"] if row.after is not None else []
    return "\n".join(lines)


def _image(image: Image) -> str:
    return " ".join(f"{_visible(name)}={value_text(value)}" for name, value in image.items())


def value_text(value: object) -> str:
    """Return a value as text: only the start of a long one, and escapes for unprintable characters."""
    if value is None:
        return "NULL"
    if isinstance(value, dict):
        # A JSON document with SQL types that its text does not show.
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
    """Return the text with escapes for unprintable characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
