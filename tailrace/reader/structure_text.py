"""Shows a table's structure as text, like CREATE TABLE, and as JSON."""

from __future__ import annotations

from typing import Any

from schemas.quote import quoted
from schemas.structure import Column, TableStructure
from tailrace.reader.history import Answer, Span


def answer_text(answer: Answer, *, history: bool) -> str:
    """Return the structure as CREATE TABLE, with its epochs and history in comments."""
    lines = [
        f"-- fingerprint {answer.version.fingerprint}",
        f"-- epochs {_range(answer.first, answer.last)}, requested epoch {answer.epoch}"
        + (f" ({answer.gtids})" if answer.gtids else ""),
    ]
    if answer.changed is not None:
        lines.append(f"-- changed since, no rows yet: {_span(answer.changed)}")
    lines.append(_create(answer.structure))
    if history:
        lines += ["-- history:", *(f"-- {_span(span)}" for span in answer.spans)]
    return "\n".join(lines)


def answer_dict(answer: Answer, *, history: bool) -> dict[str, Any]:
    """Return the structure for ``--json``; see docs/PIPELINE.md."""
    structure = answer.structure
    found: dict[str, Any] = {
        "db": structure.db,
        "table": structure.table,
        "epoch": answer.epoch,
        "gtids": answer.gtids,
        "fingerprint": answer.version.fingerprint,
        "first_epoch": answer.first,
        "last_epoch": answer.last,
        "columns": [_column_dict(column) for column in structure.columns],
        "key": list(structure.key),
        "changed": None if answer.changed is None else _span_dict(answer.changed),
    }
    if history:
        found["history"] = [_span_dict(span) for span in answer.spans]
    return found


def _range(first: int, last: int | None) -> str:
    return f"from {first}" if last is None else f"{first} to {last}"


def _create(structure: TableStructure) -> str:
    lines = [f"  {_column(column)}" for column in structure.columns]
    if structure.key:
        lines.append(f"  PRIMARY KEY ({', '.join(map(quoted, structure.key))})")
    name = quoted(structure.db, structure.table)
    return f"CREATE TABLE {name} (\n" + ",\n".join(lines) + "\n);"


def _column(column: Column) -> str:
    charset = f" CHARACTER SET {column.charset}" if column.charset not in ("", "binary") else ""
    return f"{quoted(column.name)} {column.sql_type}{charset} {'NULL' if column.nullable else 'NOT NULL'}"


def _span(span: Span) -> str:
    state = "does not exist" if span.gone else span.version.fingerprint if span.version else "no rows yet"
    return f"epoch {span.epoch}: {state}" + (f"; {' '.join(span.ddl.split())}" if span.ddl else "")


def _span_dict(span: Span) -> dict[str, Any]:
    return {
        "epoch": span.epoch,
        "fingerprint": span.version.fingerprint if span.version else None,
        "ddl": span.ddl,
        "gone": span.gone,
    }


def _column_dict(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.sql_type,
        "nullable": column.nullable,
        "charset": column.charset,
        "members": list(column.members),
    }
