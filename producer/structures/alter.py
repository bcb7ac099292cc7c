"""ALTER TABLE over a tracked definition, in the servers' order: columns in place, moves, then keys.

Source: mysql_prepare_alter_table and prepare_fields_and_keys in ``sql/sql_table.cc`` of both servers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from producer.structures.keys import covers, with_keys
from schemas.charsets.collations import MAX_CHARACTER_BYTES
from schemas.ddl.alter_clauses import Clause, alter_clauses
from schemas.ddl.column_clauses import TableElement, column_element, key_element
from schemas.ddl.column_types import (
    DdlContext,
    charset_named,
    charset_of_collation,
    converted,
    keeps_history,
    skip_group,
    word_or_string,
)
from schemas.ddl.cursor import Cursor, Unparsable
from schemas.ddl.lexer import TokenKind
from schemas.ddl.table_definition import (
    MAX_COLUMNS,
    MAX_KEYS,
    ColumnDefinition,
    KeyDefinition,
    KeyPart,
    TableDefinition,
    index_of,
    number_bytes,
    same_name,
)

# Options of a table, and what else begins a clause without changing columns or keys.
_OPTIONS = frozenset(
    {
        *("FORCE", "DISABLE", "ENABLE", "ALGORITHM", "LOCK", "WITH"),
        *("WITHOUT", "CONVERT", "DEFAULT", "CHARACTER", "CHAR", "CHARSET"),
        *("COLLATE", "ENGINE", "TYPE", "AUTO_INCREMENT", "AUTOEXTEND_SIZE", "AVG_ROW_LENGTH"),
        *("CHECKSUM", "COMMENT", "COMPRESSION", "CONNECTION", "DATA", "INDEX"),
        *("DELAY_KEY_WRITE", "ENCRYPTION", "ENGINE_ATTRIBUTE", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS"),
        *(
            "MIN_ROWS",
            "PACK_KEYS",
            "PASSWORD",
            "ROW_FORMAT",
            "SECONDARY_ENGINE",
            "SECONDARY_ENGINE_ATTRIBUTE",
        ),
        *(
            "SECONDARY_LOAD",
            "SECONDARY_UNLOAD",
            "STATS_AUTO_RECALC",
            "STATS_PERSISTENT",
            "STATS_SAMPLE_PAGES",
        ),
        *("STORAGE", "TABLESPACE", "UNION", "UPGRADE"),
    }
)


_MOST_CLAUSES, _MOST_TOKENS = 20_000, 1 << 19
_STRINGS = ("char", "varchar", "binary", "varbinary")


class _AlteredColumn(NamedTuple):
    """A column of the new table: the name that keys know it by, and what it was; None: it is new."""

    name: str
    old: ColumnDefinition | None
    column: ColumnDefinition


@dataclass
class _Plan:
    """What the clauses of a statement ask for; columns by their old names.

    Attributes:
        changed: the new definitions.
        positioned: new columns, and changed ones by their old names, with what FIRST or AFTER says.
    """

    charset: str | None
    versioned: bool
    convert: bool = False
    dropped: list[str] = field(default_factory=list)
    changed: dict[str, ColumnDefinition] = field(default_factory=dict)
    positioned: list[tuple[ColumnDefinition | str, tuple[str, ...] | None]] = field(default_factory=list)
    keys: list[KeyDefinition] = field(default_factory=list)
    dropped_keys: list[str] = field(default_factory=list)
    renamed_keys: dict[str, str] = field(default_factory=dict)
    foreign: bool = False
    not_null: list[str] = field(default_factory=list)

    @property
    def rebuilds(self) -> bool:
        """Whether it changes columns or keys."""
        columns = bool(self.dropped or self.changed or self.positioned or self.not_null or self.convert)
        return columns or bool(self.keys or self.dropped_keys or self.renamed_keys or self.foreign)

    def added(self) -> list[str]:
        """The names of the new columns."""
        return [column.name for column, _ in self.positioned if not isinstance(column, str)]


def alter_table(
    cursor: Cursor, table: TableDefinition, session: DdlContext, database_charset: str | None
) -> TableDefinition:
    """Return the table definition after an ALTER TABLE.

    Args:
        cursor: behind the table's name.

    Raises:
        Unparsable: a clause is unknown or does not fit the table.
    """
    clauses = _limited(alter_clauses(cursor))
    plan = _Plan(table.charset, table.versioned)
    _defaults([cursor.over(c.definition) for c in clauses if not c.verb], plan, session, database_charset)
    for clause in clauses:
        _clause(clause, cursor.over(clause.definition), plan, table, session)
    return _apply_plan(plan, table, session)


def _limited(clauses: Iterable[Clause]) -> list[Clause]:
    taken: list[Clause] = []
    tokens = 0
    for clause in clauses:
        taken.append(clause)
        tokens += len(clause.definition)
        if len(taken) > _MOST_CLAUSES or tokens > _MOST_TOKENS:
            raise Unparsable("more clauses than a table has columns and keys")
    return taken


def _defaults(options: Iterable[Cursor], plan: _Plan, session: DdlContext, database: str | None) -> None:
    """The new default character set, which the statement's own columns take over wherever it stands."""
    explicit = False
    named_here: set[str | None] = set()
    for cursor in options:
        while (token := cursor.next()).kind is not TokenKind.END:
            if token.key == "(":
                skip_group(cursor, opened=True)
            elif token.key == "CONVERT" and cursor.take("TO"):
                plan.convert = True
            elif token.key == "CHARSET" or (token.key in ("CHARACTER", "CHAR") and cursor.take("SET")):
                cursor.take("=")
                default = cursor.take("DEFAULT")
                named = database if default else charset_named(word_or_string(cursor, session), session)
                if explicit and named != plan.charset:
                    raise Unparsable("it names two character sets")
                plan.charset, explicit = named, True
                named_here.add(named)
            elif token.key == "COLLATE":
                cursor.take("=")
                if not cursor.take("DEFAULT"):
                    plan.charset = charset_of_collation(word_or_string(cursor, session), plan.charset)
                    named_here.add(plan.charset)
                elif not explicit:
                    raise Unparsable("COLLATE DEFAULT without a character set")
    if plan.convert and len(named_here) > 1:
        # The columns' one and the default may then be two, and the servers do not agree which is which.
        raise Unparsable("it names two character sets")


def _clause(clause: Clause, rest: Cursor, plan: _Plan, table: TableDefinition, session: DdlContext) -> None:
    """Args: rest: over the clause's definition."""
    if clause.object_kind == "PARTITION":
        return
    if clause.object_kind == "SYSTEM VERSIONING":
        plan.versioned = clause.verb == "ADD"
        return
    if not clause.verb:
        _options(rest, plan)
        return
    if clause.verb == "ADD" and clause.object_kind == "COLUMN":
        _add(column_element(rest, session, plan.charset), plan, table, clause.if_exists)
    elif clause.verb == "ADD":
        _take_keys(key_element(rest), plan, table)
    elif clause.verb == "DROP":
        _drop(clause, plan, table, session)
        rest.take_any("RESTRICT", "CASCADE")
    elif clause.verb == "RENAME":
        _rename(clause, plan, table)
    elif clause.verb == "ALTER":
        _alter(clause, rest, plan, table)
        return
    else:
        _change(clause, column_element(rest, session, plan.charset), plan, table)
    rest.end()


def _options(cursor: Cursor, plan: _Plan) -> None:
    """Step over options of the table, which need no commas between them."""
    if cursor.peek().key not in _OPTIONS and cursor.peek(1).key != "=":
        raise Unparsable(f"a clause that begins with {cursor.peek().text!r}")
    plan.versioned |= keeps_history([token.key for token in cursor.rest()])


# columns --------------------------------------------------------------------------------------------


def _add(part: TableElement, plan: _Plan, table: TableDefinition, lenient: bool) -> None:
    assert part.column is not None
    new = plan.added()
    # The servers look at the table as it was, whatever the statement drops.
    if lenient and (table.column(part.column.name) is not None or index_of(new, part.column.name) >= 0):
        return
    plan.positioned.append((part.column, part.position))
    plan.keys += part.keys
    if len(new) >= MAX_COLUMNS or len(plan.keys) > MAX_KEYS:
        raise Unparsable("more columns or keys than a table has")
    plan.foreign |= part.foreign


def _take_keys(part: TableElement, plan: _Plan, table: TableDefinition) -> None:
    plan.foreign |= part.foreign
    plan.not_null += part.period
    for key in part.keys:
        there = any(same_name(known.name, key.name) for known in table.keys)
        if not (part.if_not_exists and there):
            plan.keys.append(key)
    if len(plan.keys) > MAX_KEYS:
        raise Unparsable("more keys than a table has")


def _change(clause: Clause, part: TableElement, plan: _Plan, table: TableDefinition) -> None:
    assert part.column is not None
    known = _known(clause, table)
    if known is None:
        return
    plan.changed[known.name] = part.column
    plan.keys += part.keys
    plan.foreign |= part.foreign
    if part.position is not None:
        plan.positioned.append((known.name, part.position))


def _known(clause: Clause, table: TableDefinition) -> ColumnDefinition | None:
    """The column that a clause names; None where it says IF EXISTS, and it does not."""
    known = table.column(clause.name)
    if known is None and not clause.if_exists:
        raise Unparsable(f"the tracked structure has no column {clause.name!r}")
    return known


def _drop(clause: Clause, plan: _Plan, table: TableDefinition, session: DdlContext) -> None:
    if clause.object_kind == "COLUMN":
        known = _known(clause, table)
        plan.dropped += [known.name] if known else []
    elif clause.object_kind == "PERIOD" and clause.name.upper() == "SYSTEM_TIME":
        raise Unparsable("system versioning")
    elif clause.object_kind == "PRIMARY KEY":
        plan.dropped_keys.append("PRIMARY")
    elif clause.object_kind == "KEY":
        _drop_key(clause.name, plan, table)
    elif clause.object_kind == "CONSTRAINT":
        found = next((k for k in table.keys if same_name(k.name, clause.name) and k.kind != "other"), None)
        if found is not None and found.hash:
            raise Unparsable(f"whether the key {found.name!r} still is one by hash is not known")
        # MariaDB takes unique keys by hash for no constraints: IF EXISTS leaves them.
        if found is not None and not (session.flavor == "mariadb" and table.hashed(found)):
            _drop_key(clause.name, plan, table)


def _drop_key(name: str, plan: _Plan, table: TableDefinition) -> None:
    """A name of the server's making may belong to another key where foreign keys bring some of their own."""
    found = next((key for key in table.keys if same_name(key.name, name)), None)
    doubtful = table.foreign and any(not key.named for key in table.keys)
    if doubtful and (found is None or not found.named):
        raise Unparsable(f"which of the keys the server has named {name!r} is not known")
    if found is None and not table.whole:
        raise Unparsable("it drops a key, and not all keys of the table are known")
    if found is not None:
        plan.dropped_keys.append(found.name)


def _alter(clause: Clause, rest: Cursor, plan: _Plan, table: TableDefinition) -> None:
    """ALTER COLUMN, INDEX, CHECK, CONSTRAINT: nothing but the visibility of columns is of concern."""
    known = table.column(clause.name) if clause.object_kind == "COLUMN" else None
    visible = rest.at("SET", "VISIBLE")
    if known is not None and (visible or rest.at("SET", "INVISIBLE")):
        plan.changed[known.name] = replace(plan.changed.get(known.name, known), invisible=not visible)


def _rename(clause: Clause, plan: _Plan, table: TableDefinition) -> None:
    if clause.object_kind == "KEY":
        plan.renamed_keys[clause.name.lower()] = clause.new_name
    elif clause.object_kind == "COLUMN" and (known := _known(clause, table)) is not None:
        plan.changed[known.name] = replace(plan.changed.get(known.name, known), name=clause.new_name)


# carrying it out ------------------------------------------------------------------------------------


def _apply_plan(plan: _Plan, table: TableDefinition, session: DdlContext) -> TableDefinition:
    altered = _columns(plan, table)
    columns = [one.column for one in altered]
    if plan.convert:
        columns = [converted(column, plan.charset) for column in columns]
    new = replace(
        table,
        columns=tuple(columns),
        charset=plan.charset,
        foreign=table.foreign or plan.foreign,
        versioned=plan.versioned,
        keys=(),
    )
    new = new.not_null(plan.not_null)
    kept = [
        key
        for key in (_kept(key, plan, table, altered, new, session) for key in table.keys)
        if key is not None
    ]
    if not table.whole and (plan.dropped_keys or plan.dropped or (plan.changed and not kept)):
        raise Unparsable("it may make another key the first one, and not all keys of the table are known")
    # The primary key first: its columns are NOT NULL, whatever a part says of them.
    old = [key for key in kept if key.kind == "primary"] + [key for key in kept if key.kind != "primary"]
    return with_keys(new, [*old, *plan.keys], session)


def _columns(plan: _Plan, table: TableDefinition) -> list[_AlteredColumn]:
    altered = [
        _AlteredColumn(column.name, column, plan.changed.get(column.name, column))
        for column in table.columns
        if index_of(plan.dropped, column.name) < 0
    ]
    for column, position in plan.positioned:
        if isinstance(column, str):
            moved = next(known for known in altered if known.name == column)
            altered.remove(moved)
        else:
            moved = _AlteredColumn(column.name, None, column)
        if position is None:
            altered.append(moved)
        elif not position:
            altered.insert(0, moved)
        else:
            after = index_of([known.column.name for known in altered], position[0])
            if after < 0:
                raise Unparsable(f"the tracked structure has no column {position[0]!r}")
            altered.insert(after + 1, moved)
    return altered


def _new_prefix(prefix: int | None, old: ColumnDefinition | None, new: ColumnDefinition) -> int | None:
    """A part's prefix once its column is another one.

    Args:
        old: the column before, on MySQL, which takes the bytes of an ENUM's or a SET's number for a prefix of the
            text that it becomes. Source: sql/sql_table.cc, prepare_key_column of mysql_prepare_alter_table.
    """
    if prefix is None and old is not None and old.type in ("enum", "set") and new.type not in ("enum", "set"):
        width, lengths = (
            MAX_CHARACTER_BYTES.get(old.charset or "", 1),
            [len(member) for member in old.members],
        )
        shown = max(lengths) if old.type == "enum" else sum(lengths) + len(lengths) - 1
        size = number_bytes(old)
        prefix = None if shown * width == size else size // width or None
    return None if prefix is None or covers(prefix, new) else prefix


def _taken_over(part: KeyPart, table: TableDefinition, new: ColumnDefinition) -> int | None:
    """The prefix of a part whose column is a new one of the old name: of text, as much as the key had so far."""
    old = table.column(part.name)
    length = part.prefix or (old.length if old is not None and old.type in _STRINGS else None)
    if new.type in ("text", "blob", *_STRINGS):
        if length is None:
            raise Unparsable(f"how much of the new column {new.name!r} belongs to its old key")
        return None if covers(length, new) else length
    return None


def _kept(
    key: KeyDefinition,
    plan: _Plan,
    table: TableDefinition,
    altered: list[_AlteredColumn],
    new: TableDefinition,
    session: DdlContext,
) -> KeyDefinition | None:
    """An old key over the new columns; None if it is dropped, or loses all its columns."""
    if index_of(plan.dropped_keys, key.name) >= 0:
        return None
    parts = []
    for part in key.parts:
        if not part.name:
            parts.append(part)
            continue
        # The servers go by names, the old ones of old columns: a new column may take a key over.
        found = index_of([one.name for one in altered], part.name)
        if found < 0:
            continue
        old, column, prefix = altered[found].old, new.columns[found], part.prefix
        if old is None:
            prefix = _taken_over(part, table, column)
        elif altered[found].column is not old:
            prefix = _new_prefix(prefix, old if session.flavor == "mysql" else None, column)
        parts.append(KeyPart(column.name, prefix))
    name = plan.renamed_keys.get(key.name.lower(), key.name)
    named = key.named or key.name.lower() in plan.renamed_keys
    # MariaDB keeps no USING HASH that the statement itself does not say; other ALTERs lose it as well, or not:
    # the next TABLE_MAP tells.
    hashed = key.hash and not plan.rebuilds
    return replace(key, name=name, named=named, parts=tuple(parts), hash=hashed) if parts else None
