"""Reads and caches the downstream's tables: columns, unique keys, triggers, cascading foreign keys."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pymysql

from schemas.errors import NOTHING_APPLIED, DownstreamError, Where
from schemas.quote import quoted
from schemas.tables import QualifiedName
from spark_consumer.target.crashed_tables import crashed
from spark_consumer.target.server_errors import is_crashed, is_passing
from spark_consumer.target.session import SQL_MODE, Flavor, Row, Session, error_number
from spark_consumer.target.table import (
    IMPLICIT,
    ForeignKey,
    ForeignKeys,
    TargetColumn,
    TargetKeyPart,
    TargetTable,
    Trigger,
    UniqueKey,
)
from spark_consumer.target.type_capacity import parse_type

_CASCADING = frozenset({"CASCADE", "SET NULL", "SET DEFAULT"})
# No such database, no such table.
_ABSENT = frozenset({1049, 1146})
_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")
#: tables from which on one query is made for several of them
_MANY = 20
#: as many at most: MySQL keeps 250 tables open for a connection, and the definitions of as many as max_connections, 151
TOGETHER = 100
#: the same of information_schema. MariaDB looks at all names of a database's tables, each in 1 µs, unless the query is
#: about one table, which takes 0.1 to 1.4 ms.
_MANY_FACTS: dict[Flavor, int] = {"mysql": _MANY, "mariadb": 100}
# Constants in MariaDB's spelling: NULL, quoted text, numbers, bits. Everything else is an expression.
_CONSTANT = re.compile(
    r"NULL|\w*'(?:[^'\\]|''|\\.)*'|[-+]?[0-9.]+(?:e[-+]?[0-9]+)?", re.IGNORECASE | re.DOTALL
)


@dataclass
class TargetCatalog:
    """A cache of the downstream's tables."""

    _tables: dict[QualifiedName, TargetTable | None] = field(default_factory=dict)
    _families: frozenset[QualifiedName] | None = None

    def forget(self) -> None:
        """Empty the cache. Call it after each DDL."""
        self._tables.clear()
        self._families = None

    def load(
        self, session: Session, names: Iterable[QualifiedName]
    ) -> dict[QualifiedName, TargetTable | None]:
        """Return the tables by name, None for a missing one. Only tables that are not cached are read."""
        wanted = list(dict.fromkeys(names))
        if missing := [name for name in wanted if name not in self._tables]:
            if self._families is None:
                self._families = families(_foreign_keys(session))
            self._tables |= read_tables(session, missing, self._families)
        return {name: self._tables[name] for name in wanted}


class _Facts(NamedTuple):
    """A query of ``information_schema`` about tables.

    Attributes:
        select: up to the condition of the tables.
        db, table: the columns that name the table.
        order: of the rows.
    """

    select: str
    db: str
    table: str
    order: str = ""

    def read(self, session: Session, names: Iterable[QualifiedName]) -> dict[QualifiedName, list[Row]]:
        """Return the rows of each table, in ``order``."""
        wanted = list(names)
        if len(wanted) < _MANY_FACTS[session.flavor]:
            return {name: self._of_one(session, name) for name in wanted}
        found: dict[QualifiedName, list[Row]] = {name: [] for name in wanted}
        for dbs, tables in _products(wanted):
            its = {(db, table) for db in dbs for table in tables}
            condition = f"{self.db} IN ({_marks(dbs)}) AND {self.table} IN ({_marks(tables)})"
            names_first = f"{self.db}, {self.table}, "
            for db, table, *row in self._rows(session, names_first, condition, (*dbs, *tables)):
                name = (_text(db), _text(table))
                if name not in found:
                    # The server does not distinguish upper and lower case.
                    return {name: self._of_one(session, name) for name in wanted}
                # MariaDB's query does not either, even if its names do.
                if name in its:
                    found[name].append(tuple(row))
        return found

    def _of_one(self, session: Session, name: QualifiedName) -> list[Row]:
        return self._rows(session, "", f"{self.db} = %s AND {self.table} = %s", name)

    def _rows(self, session: Session, names: str, condition: str, args: Row) -> list[Row]:
        order = f" ORDER BY {self.order}" if self.order else ""
        return session.rows(f"SELECT {names}{self.select} {condition}{order}", args)


def _products(names: Sequence[QualifiedName]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield databases and the names of tables that are wanted of each: of one database, or one name of many.

    Tenants have a database each, with the same tables.
    """
    side = int(len({db for db, _ in names}) > len({table for _, table in names}))
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name[side], []).append(name[1 - side])
    for one, others in groups.items():
        for first in range(0, len(others), TOGETHER):
            part = others[first : first + TOGETHER]
            yield (part, [one]) if side else ([one], part)


def _marks(values: Sequence[str]) -> str:
    return ", ".join(["%s"] * len(values))


_COLUMNS = _Facts(
    "COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA, CHARACTER_SET_NAME, COLLATION_NAME,"
    " GENERATION_EXPRESSION FROM information_schema.COLUMNS WHERE",
    "TABLE_SCHEMA",
    "TABLE_NAME",
    "ORDINAL_POSITION",
)
_KINDS = _Facts(
    "t.TABLE_TYPE, t.ENGINE, e.TRANSACTIONS FROM information_schema.TABLES t"
    " LEFT JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE WHERE",
    "t.TABLE_SCHEMA",
    "t.TABLE_NAME",
)
_UNIQUE_KEYS = _Facts(
    "INDEX_NAME, COLUMN_NAME, SUB_PART, NULLABLE FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0 AND",
    "TABLE_SCHEMA",
    "TABLE_NAME",
    "INDEX_NAME, SEQ_IN_INDEX",
)
_TRIGGERS = _Facts(
    "TRIGGER_NAME, ACTION_TIMING, EVENT_MANIPULATION, ACTION_STATEMENT, SQL_MODE"
    " FROM information_schema.TRIGGERS WHERE",
    "EVENT_OBJECT_SCHEMA",
    "EVENT_OBJECT_TABLE",
    "TRIGGER_NAME",
)


def read_table(
    session: Session, name: QualifiedName, in_family: frozenset[QualifiedName] = frozenset()
) -> TargetTable | None:
    """Read a table as it is now; None if it does not exist. Raises what ``read_tables`` raises."""
    return read_tables(session, [name], in_family)[name]


def read_tables(
    session: Session, names: Sequence[QualifiedName], in_family: frozenset[QualifiedName]
) -> dict[QualifiedName, TargetTable | None]:
    """Read tables as they are now; None for one that does not exist.

    Args:
        in_family: tables, in lower case, that foreign keys connect.

    Raises:
        DownstreamError: TR663, a table's files are damaged.
        pymysql.MySQLError
    """
    # Before everything else: what is altered from here on differs from it when the table is locked.
    texts = _definitions(session, names)
    columns = _COLUMNS.read(session, [name for name in names if not _is_absent(texts[name])])
    there = [name for name, its in columns.items() if its]
    facts = (_KINDS, _UNIQUE_KEYS, _TRIGGERS)
    kinds, keys, triggers = (each.read(session, there) for each in facts)
    return dict.fromkeys(names) | {
        name: _table(
            session, name, texts[name], columns[name], kinds[name], keys[name], triggers[name], in_family
        )
        for name in there
    }


def _table(
    session: Session,
    name: QualifiedName,
    text: str | pymysql.MySQLError,
    columns: list[Row],
    kinds: list[Row],
    keys: list[Row],
    trigger_rows: list[Row],
    in_family: frozenset[QualifiedName],
) -> TargetTable:
    if not isinstance(text, str):
        if is_crashed(text):
            raise crashed(name, text, Where(table=".".join(name))) from text
        raise text
    triggers = _triggers(trigger_rows)
    kind, engine, transactions = (str(value or "") for value in (kinds[0] if kinds else ("", "", "")))
    is_related = (name[0].lower(), name[1].lower()) in in_family
    return TargetTable(
        name,
        tuple(_with_members(session, name, _column(session.flavor, *row)) for row in columns),
        _keys(keys),
        is_related,
        triggers,
        _definition(text, triggers),
        kind == "SYSTEM VERSIONED",
        engine,
        # A sequence is written as a whole and BLACKHOLE stores nothing, so a repeated write does no harm.
        transactions == "YES" or kind == "SEQUENCE" or engine.upper() == "BLACKHOLE",
        kind == "VIEW",
        _referred_columns(session, name) if is_related else None,
        session.flavor,
    )


def _definition(text: str, triggers: Iterable[Trigger]) -> str:
    return "\n".join((_COUNTER.sub("", text), *map(str, triggers)))


def _show(name: QualifiedName) -> str:
    return "SHOW CREATE TABLE " + quoted(*name)


def _definitions(
    session: Session, names: Sequence[QualifiedName]
) -> dict[QualifiedName, str | pymysql.MySQLError]:
    """Read the tables' definitions, those of many together. One that cannot be read is the server's error."""
    found: dict[QualifiedName, str | pymysql.MySQLError] = {}
    for first in range(0, len(names), TOGETHER):
        part = names[first : first + TOGETHER]
        try:
            if len(part) >= _MANY:
                rows = session.rows_of_each([_show(name) for name in part])
                found |= {name: str(its[0][1]) for name, its in zip(part, rows, strict=True)}
                continue
        except pymysql.MySQLError as error:
            if is_passing(error):
                raise
            # That of one table, which it is asked for again.
        found |= {name: _read_definition(session, name) for name in part}
    return found


def _read_definition(session: Session, name: QualifiedName) -> str | pymysql.MySQLError:
    try:
        return str(session.rows(_show(name))[0][1])
    except pymysql.MySQLError as error:
        if is_passing(error):
            raise
        return error


def _is_absent(text: str | pymysql.MySQLError) -> bool:
    return not isinstance(text, str) and error_number(text) in _ABSENT


class TableAltered(DownstreamError):
    """TR654: the table has changed since the plan was made. A new plan helps."""

    def __init__(self, name: QualifiedName) -> None:
        super().__init__(
            "TR654",
            "the downstream's table was altered repeatedly while a batch was being applied to it",
            where=Where(table=".".join(name)),
            hint="wait until nothing alters the table any more, then start the consumer again",
            applied=NOTHING_APPLIED,
            retryable=True,
        )


def lock_tables(session: Session, expected: Mapping[QualifiedName, str]) -> None:
    """Keep others from altering tables until the open transaction ends.

    Args:
        expected: their definitions.

    Raises:
        TableAltered: one was altered.
        pymysql.MySQLError
    """
    names = list(expected)
    texts: dict[QualifiedName, str | pymysql.MySQLError] = {}
    for first in range(0, len(names), TOGETHER):
        part = names[first : first + TOGETHER]
        try:
            _hold(session, part)
        except TableAltered:
            # Which one is missing?
            for name in part:
                _hold(session, [name])
            raise
        # The server still has them open.
        texts |= _definitions(session, part)
    triggers = _TRIGGERS.read(session, names)
    for name, text in texts.items():
        if _is_absent(text):
            raise TableAltered(name)
        if not isinstance(text, str):
            raise text
        if _definition(text, _triggers(triggers[name])) != expected[name]:
            raise TableAltered(name)


def _hold(session: Session, names: Sequence[QualifiedName]) -> None:
    # SELECT keeps its metadata locks until the transaction ends; SHOW releases its own at once.
    selects = (f"(SELECT 1 FROM {quoted(*name)} LIMIT 0)" for name in names)
    try:
        session.rows(" UNION ALL ".join(selects))
    except pymysql.MySQLError as error:
        if error_number(error) in _ABSENT:
            raise TableAltered(names[0]) from error
        raise


def _with_members(session: Session, name: QualifiedName, column: TargetColumn) -> TargetColumn:
    """Return the column with its real members: the server shows them in utf8mb3, with ? for characters such as 😀.

    Only a value has the member's real text, so the members are written to a temporary table and read from it.
    """
    kind = column.type
    if not any("?" in member for member in kind.members):
        return column
    numbers = range(1, len(kind.members) + 1)
    values = (n if kind.base == "enum" else 1 << n - 1 for n in numbers)
    rows = ", ".join(f"({n}, {value})" for n, value in zip(numbers, values, strict=True))
    made = f"SELECT {quoted(column.name)} AS m FROM {quoted(*name)} LIMIT 0"
    try:
        # In strict mode the server refuses a list with a repeated member.
        session.execute("SET SESSION sql_mode = ''")
        session.execute("DROP TEMPORARY TABLE IF EXISTS tailrace.members")
        session.execute(f"CREATE TEMPORARY TABLE tailrace.members (n INT PRIMARY KEY) {made}")
        session.execute(f"INSERT INTO tailrace.members (n, m) VALUES {rows}")
        found = session.rows("SELECT m FROM tailrace.members ORDER BY n")
        session.execute("DROP TEMPORARY TABLE tailrace.members")
    finally:
        with contextlib.suppress(pymysql.MySQLError, OSError):
            session.execute(f"SET SESSION sql_mode = '{SQL_MODE}'")
    return replace(column, type=replace(kind, members=tuple(_text(member) for (member,) in found)))


def _column(
    flavor: Flavor,
    name: str,
    kind: str,
    nullable: str,
    default: str | None,
    extra: str,
    charset: str | None,
    collation: str | None,
    expression: str | bytes | None,
) -> TargetColumn:
    parsed = parse_type(_text(kind), charset or "")
    extra = (extra or "").upper()
    may_be_null = nullable == "YES"
    default_sql = default_of(
        flavor, extra, None if default is None else _text(default), may_be_null, parsed.base
    )
    # MariaDB shows a default NULL as the text "NULL". An ENUM without a default gets its first member.
    default = (
        None if default is None or (may_be_null and _text(default).upper() == "NULL") else _text(default)
    )
    fills = may_be_null or default is not None or "AUTO_INCREMENT" in extra or parsed.base == "enum"
    generated = _is_generated(extra)
    return TargetColumn(
        name,
        parsed,
        may_be_null,
        fills or generated,
        generated,
        collation or "",
        default,
        default_sql,
        "ON UPDATE" in extra,
        flavor == "mariadb" and _text(expression or "") in ("ROW START", "ROW END"),
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _is_generated(extra: str) -> bool:
    # MySQL shows DEFAULT_GENERATED for a column with an expression default, which accepts values.
    return any(word in extra for word in ("VIRTUAL GENERATED", "STORED GENERATED", "PERSISTENT"))


def _keys(rows: Iterable[Row]) -> tuple[UniqueKey, ...]:
    parts: dict[str, list[TargetKeyPart]] = {}
    for index, column, length, nullable in rows:
        part = TargetKeyPart(column.lower() if column else None, length, nullable == "YES")
        parts.setdefault(index, []).append(part)
    in_order = sorted(parts, key=lambda index: (index != "PRIMARY", index))
    return tuple(UniqueKey(index, tuple(parts[index])) for index in in_order)


def triggers_of(session: Session, name: QualifiedName) -> tuple[Trigger, ...]:
    """Read the triggers on a table that the account may see."""
    return _triggers(_TRIGGERS.read(session, [name])[name])


def _triggers(rows: Iterable[Row]) -> tuple[Trigger, ...]:
    return tuple(Trigger(*map(_text, row)) for row in rows)


def _foreign_keys(session: Session) -> list[tuple[QualifiedName, QualifiedName, bool]]:
    rows = session.rows(
        "SELECT DISTINCT r.CONSTRAINT_SCHEMA, r.TABLE_NAME, r.UNIQUE_CONSTRAINT_SCHEMA,"
        " r.REFERENCED_TABLE_NAME, r.DELETE_RULE, r.UPDATE_RULE"
        " FROM information_schema.REFERENTIAL_CONSTRAINTS r"
    )
    return [
        (
            (str(db).lower(), str(table).lower()),
            (str(parent_db).lower(), str(parent).lower()),
            on_delete in _CASCADING or on_update in _CASCADING,
        )
        for db, table, parent_db, parent, on_delete, on_update in rows
    ]


def _referred_columns(session: Session, name: QualifiedName) -> tuple[frozenset[str], frozenset[str]]:
    """Return a table's columns, in lower case, to which foreign keys refer that act on a DELETE, and on an UPDATE."""
    rows = session.rows(
        "SELECT k.REFERENCED_COLUMN_NAME, r.DELETE_RULE, r.UPDATE_RULE FROM information_schema.KEY_COLUMN_USAGE k"
        " JOIN information_schema.REFERENTIAL_CONSTRAINTS r ON r.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA"
        " AND r.TABLE_NAME = k.TABLE_NAME AND r.CONSTRAINT_NAME = k.CONSTRAINT_NAME"
        " WHERE LOWER(k.REFERENCED_TABLE_SCHEMA) = %s AND LOWER(k.REFERENCED_TABLE_NAME) = %s",
        (name[0].lower(), name[1].lower()),
    )
    return (
        frozenset(str(column).lower() for column, on_delete, _ in rows if on_delete in _CASCADING),
        frozenset(str(column).lower() for column, _, on_update in rows if on_update in _CASCADING),
    )


def families(keys: Iterable[tuple[QualifiedName, QualifiedName, bool]]) -> frozenset[QualifiedName]:
    """Return all tables that a chain of foreign keys connects with a cascading one.

    Args:
        keys: for each foreign key its child, its parent and whether it cascades.
    """
    neighbors: dict[QualifiedName, set[QualifiedName]] = {}
    pending: list[QualifiedName] = []
    for child, parent, cascades in keys:
        neighbors.setdefault(child, set()).add(parent)
        neighbors.setdefault(parent, set()).add(child)
        if cascades:
            pending += [child, parent]
    found: set[QualifiedName] = set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += neighbors[name] - found
    return frozenset(found)


def default_of(flavor: Flavor, extra: str, default: str | None, nullable: bool, kind: str) -> bytes | None:
    """Return SQL text of the value that an INSERT writes into a column that it omits; None if it is not known.

    Args:
        extra, default: the columns of ``information_schema.COLUMNS``.
        kind: the type's name in lower case, such as ``varchar``.
    """
    words = extra.upper()
    if any(word in words for word in ("AUTO_INCREMENT", "DEFAULT_GENERATED", " GENERATED", "PERSISTENT")):
        return None
    if default is None:
        return b"DEFAULT" if nullable else IMPLICIT.get(kind)
    if flavor == "mariadb":
        return b"DEFAULT" if _CONSTANT.fullmatch(default) else None
    # MySQL shows constants without quotes, and before 8.0 does not mark the one default that is not a constant.
    now = kind in ("timestamp", "datetime") and default.upper().startswith("CURRENT_TIMESTAMP")
    return None if now else b"DEFAULT"


@dataclass
class ForeignKeyCatalog:
    """A cache of the downstream's foreign keys."""

    _tables: ForeignKeys = field(default_factory=dict)

    def forget(self) -> None:
        """Empty the cache. Call it after each DDL."""
        self._tables.clear()

    def load(self, session: Session, names: Iterable[QualifiedName]) -> ForeignKeys:
        """Return the foreign keys of these tables, by the tables' names."""
        wanted = dict.fromkeys(names)
        for name in wanted:
            if name not in self._tables:
                self._tables[name] = _references(session, name)
        return {name: self._tables[name] for name in wanted}


def _references(session: Session, name: QualifiedName) -> tuple[ForeignKey, ...]:
    rows = session.rows(
        "SELECT CONSTRAINT_NAME, COLUMN_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME,"
        " REFERENCED_COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND REFERENCED_TABLE_NAME IS NOT NULL"
        " ORDER BY CONSTRAINT_NAME, ORDINAL_POSITION",
        name,
    )
    found: dict[str, list[tuple[str, QualifiedName, str]]] = {}
    for constraint, column, db, table, referenced in rows:
        parent = (db.lower(), table.lower())
        found.setdefault(constraint, []).append((column.lower(), parent, referenced.lower()))
    return tuple(
        ForeignKey(tuple(c for c, _, _ in columns), columns[0][1], tuple(r for _, _, r in columns))
        for columns in found.values()
    )
