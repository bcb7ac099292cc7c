"""ALTER TABLE over a tracked definition, in the servers' order of work: columns in place, moves, then keys.

Source: mysql_prepare_alter_table and prepare_fields_and_keys in ``sql/sql_table.cc`` of both servers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from producer.structures.keys import covers, with_keys
from schemas.charsets.collations import MAX_CHARACTER_BYTES
from schemas.ddl.column_clauses import Part, at_column, column_part, key_part
from schemas.ddl.column_types import (
    Session,
    charset_named,
    charset_of_collation,
    converted,
    keeps_history,
    look_ahead,
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
    same,
)

# Parts that stand alone and change no columns; their lists of partitions have commas.
_PARTITIONS = frozenset({"PARTITION", "COALESCE", "REORGANIZE", "EXCHANGE", "TRUNCATE", "REMOVE"})
_PARTITION_UPKEEP = frozenset({"ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR"})
# Options of a table, and what else begins a part without changing columns or keys.
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


_MOST_PARTS = 20_000
_STRINGS = ("char", "varchar", "binary", "varbinary")


class _Place(NamedTuple):
    """A column of the new table: the name that keys know it by, and what it was; None: it is new."""

    name: str
    old: ColumnDefinition | None
    column: ColumnDefinition


@dataclass
class _Plan:
    """What the parts of a statement ask for; columns by their old names.

    Attributes:
        changed: the new definitions.
        placed: new columns, and changed ones by their old names, with what FIRST or AFTER says.
    """

    charset: str | None
    versioned: bool
    convert: bool = False
    dropped: list[str] = field(default_factory=list)
    changed: dict[str, ColumnDefinition] = field(default_factory=dict)
    placed: list[tuple[ColumnDefinition | str, tuple[str, ...] | None]] = field(default_factory=list)
    keys: list[KeyDefinition] = field(default_factory=list)
    dropped_keys: list[str] = field(default_factory=list)
    renamed_keys: dict[str, str] = field(default_factory=dict)
    foreign: bool = False
    not_null: list[str] = field(default_factory=list)
    parts: int = 0

    @property
    def rebuilds(self) -> bool:
        """Whether it changes columns or keys."""
        columns = bool(self.dropped or self.changed or self.placed or self.not_null or self.convert)
        return columns or bool(self.keys or self.dropped_keys or self.renamed_keys or self.foreign)

    def added(self) -> list[str]:
        """The names of the new columns."""
        return [column.name for column, _ in self.placed if not isinstance(column, str)]


def altered(
    cursor: Cursor, table: TableDefinition, session: Session, database_charset: str | None
) -> TableDefinition:
    """The table behind an ALTER TABLE.

    Args:
        cursor: behind the table's name.

    Raises:
        Unparsable: what is not understood, or does not fit the table.
    """
    plan = _Plan(table.charset, table.versioned)
    _defaults(cursor, plan, session, database_charset)
    while cursor.peek().kind is not TokenKind.END and not cursor.at(";"):
        if not _part(cursor, plan, table, session):
            break
        plan.parts += 1
        if plan.parts > _MOST_PARTS:
            raise Unparsable("more parts than a table has columns and keys")
        if not cursor.take(","):
            continue
    return _carried_out(plan, table, session)


def _defaults(cursor: Cursor, plan: _Plan, session: Session, database: str | None) -> None:
    """The new default character set, which the statement's own columns take over wherever it stands."""
    if cursor.peek().kind is TokenKind.END:
        return
    ahead = look_ahead(cursor, session)
    depth, first, explicit = 0, True, False
    named_here: set[str | None] = set()
    while (token := ahead.next()).kind is not TokenKind.END:
        if depth == 0 and (first or token.key == "CONVERT"):
            if token.key == "PARTITION":
                return
            if token.key == "CONVERT" and ahead.take("TO"):
                plan.convert = True
            if token.key in ("ADD", "MODIFY", "CHANGE", "ALTER", "DROP", "RENAME"):
                _skip_part(ahead)
                continue
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        first = depth == 0 and token.key == ","
        if depth:
            continue
        if token.key == "CHARSET" or (token.key in ("CHARACTER", "CHAR") and ahead.take("SET")):
            ahead.take("=")
            default = ahead.take("DEFAULT")
            named = database if default else charset_named(word_or_string(ahead, session), session)
            if explicit and named != plan.charset:
                raise Unparsable("it names two character sets")
            plan.charset, explicit = named, True
            named_here.add(named)
        elif token.key == "COLLATE":
            ahead.take("=")
            if not ahead.take("DEFAULT"):
                plan.charset = charset_of_collation(word_or_string(ahead, session), plan.charset)
                named_here.add(plan.charset)
            elif not explicit:
                raise Unparsable("COLLATE DEFAULT without a character set")
    if plan.convert and len(named_here) > 1:
        # The columns' one and the default may then be two, and the servers do not agree which is which.
        raise Unparsable("it names two character sets")


def _skip_part(cursor: Cursor) -> None:
    """Go behind the next comma outside of parentheses."""
    depth = 0
    while (token := cursor.next()).kind is not TokenKind.END:
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        if depth == 0 and token.key == ",":
            return


def _part(cursor: Cursor, plan: _Plan, table: TableDefinition, session: Session) -> bool:
    """One part. False: nothing that matters follows."""
    if cursor.take("ADD"):
        return _add(cursor, plan, table, session)
    if cursor.take("DROP"):
        return _drop(cursor, plan, table, session)
    if cursor.take("MODIFY"):
        cursor.take("COLUMN")
        lenient = cursor.take("IF", "EXISTS")
        _change(cursor, plan, table, session, None, lenient)
    elif cursor.take("CHANGE"):
        cursor.take("COLUMN")
        lenient = cursor.take("IF", "EXISTS")
        _change(cursor, plan, table, session, cursor.name(), lenient)
    elif cursor.take("ALTER"):
        _alter(cursor, plan, table)
    elif cursor.take("RENAME"):
        _rename(cursor, plan, table)
    elif (
        cursor.at("ORDER")
        or cursor.peek().key in _PARTITIONS
        or (cursor.peek().key in _PARTITION_UPKEEP and cursor.peek(1).key == "PARTITION")
    ):
        return False
    else:
        _option(cursor, plan)
        return True
    _closed(cursor)
    return True


def _closed(cursor: Cursor) -> None:
    """Make sure that a part ends here."""
    token = cursor.peek()
    if token.kind is TokenKind.END or token.key in (",", ";", "PARTITION"):
        return
    raise Unparsable(f"{token.text!r} at the end of a part")


def _option(cursor: Cursor, plan: _Plan) -> None:
    """Step over options of the table, which need no commas between them."""
    if cursor.peek().key not in _OPTIONS and cursor.peek(1).key != "=":
        raise Unparsable(f"a part that begins with {cursor.peek().text!r}")
    words = []
    depth = 0
    while (token := cursor.peek()).kind is not TokenKind.END and token.key != ";":
        if depth == 0 and (token.key == "," or token.key == "PARTITION"):
            break
        words.append(cursor.next().key)
        depth += {"(": 1, ")": -1}.get(token.key, 0)
    plan.versioned |= keeps_history(words)


# columns --------------------------------------------------------------------------------------------


def _add(cursor: Cursor, plan: _Plan, table: TableDefinition, session: Session) -> bool:
    if cursor.at("PARTITION"):
        return False
    if cursor.take("SYSTEM", "VERSIONING"):
        plan.versioned = True
        return True
    column = cursor.take("COLUMN")
    if not column and not at_column(cursor):
        _take_keys(key_part(cursor), plan, table)
        _closed(cursor)
        return True
    lenient = cursor.take("IF", "NOT", "EXISTS")
    if cursor.take("("):
        while True:
            if at_column(cursor):
                _take_column(column_part(cursor, session, plan.charset), plan, table, lenient)
            else:
                _take_keys(key_part(cursor), plan, table)
            if not cursor.take(","):
                break
        cursor.expect(")")
    else:
        _take_column(column_part(cursor, session, plan.charset), plan, table, lenient)
    _closed(cursor)
    return True


def _take_column(part: Part, plan: _Plan, table: TableDefinition, lenient: bool) -> None:
    assert part.column is not None
    new = plan.added()
    # The servers look at the table as it was, whatever the statement drops.
    if lenient and (table.column(part.column.name) is not None or index_of(new, part.column.name) >= 0):
        return
    plan.placed.append((part.column, part.position))
    plan.keys += part.keys
    if len(new) >= MAX_COLUMNS or len(plan.keys) > MAX_KEYS:
        raise Unparsable("more columns or keys than a table has")
    plan.foreign |= part.foreign


def _take_keys(part: Part, plan: _Plan, table: TableDefinition) -> None:
    plan.foreign |= part.foreign
    plan.not_null += part.period
    for key in part.keys:
        there = any(same(known.name, key.name) for known in table.keys)
        if not (part.if_not_exists and there):
            plan.keys.append(key)
    if len(plan.keys) > MAX_KEYS:
        raise Unparsable("more keys than a table has")


def _change(
    cursor: Cursor, plan: _Plan, table: TableDefinition, session: Session, old: str | None, lenient: bool
) -> None:
    part = column_part(cursor, session, plan.charset)
    assert part.column is not None
    known = table.column(part.column.name if old is None else old)
    if known is None:
        if lenient:
            return
        raise Unparsable(f"the tracked structure has no column {old or part.column.name!r}")
    plan.changed[known.name] = part.column
    plan.keys += part.keys
    plan.foreign |= part.foreign
    if part.position is not None:
        plan.placed.append((known.name, part.position))


def _drop(cursor: Cursor, plan: _Plan, table: TableDefinition, session: Session) -> bool:
    if cursor.at("PARTITION"):
        return False
    if cursor.take("SYSTEM", "VERSIONING"):
        plan.versioned = False
        return True
    if cursor.take("PERIOD", "FOR") or cursor.take("PERIOD", "IF", "EXISTS", "FOR"):
        if cursor.name().upper() == "SYSTEM_TIME":
            raise Unparsable("system versioning")
    elif cursor.take("PRIMARY", "KEY"):
        plan.dropped_keys.append("PRIMARY")
    elif cursor.take_any("INDEX", "KEY"):
        cursor.take("IF", "EXISTS")
        _drop_key(cursor.name(), plan, table)
    elif cursor.take("FOREIGN", "KEY"):
        cursor.take("IF", "EXISTS")
        cursor.name()
    elif cursor.take("CHECK"):
        cursor.name()
    elif cursor.take("CONSTRAINT"):
        cursor.take("IF", "EXISTS")
        name = cursor.name()
        found = next((key for key in table.keys if same(key.name, name) and key.kind != "other"), None)
        if found is not None and found.hash:
            raise Unparsable(f"whether the key {found.name!r} still is one by hash is not known")
        # MariaDB takes unique keys by hash for no constraints: IF EXISTS leaves them.
        if found is not None and not (session.flavor == "mariadb" and table.hashed(found)):
            _drop_key(name, plan, table)
    else:
        cursor.take("COLUMN")
        lenient = cursor.take("IF", "EXISTS")
        name = cursor.name()
        known = table.column(name)
        if known is None and not lenient:
            raise Unparsable(f"the tracked structure has no column {name!r}")
        plan.dropped += [known.name] if known else []
        cursor.take_any("RESTRICT", "CASCADE")
    _closed(cursor)
    return True


def _drop_key(name: str, plan: _Plan, table: TableDefinition) -> None:
    """A name of the server's making may belong to another key where foreign keys bring some of their own."""
    found = next((key for key in table.keys if same(key.name, name)), None)
    doubtful = table.foreign and any(not key.named for key in table.keys)
    if doubtful and (found is None or not found.named):
        raise Unparsable(f"which of the keys the server has named {name!r} is not known")
    if found is None and not table.whole:
        raise Unparsable("it drops a key, and not all keys of the table are known")
    if found is not None:
        plan.dropped_keys.append(found.name)


def _alter(cursor: Cursor, plan: _Plan, table: TableDefinition) -> None:
    """ALTER COLUMN, INDEX, CHECK, CONSTRAINT: nothing but the visibility of columns is of concern."""
    if cursor.peek(1).kind is not TokenKind.SIGN and cursor.take_any("INDEX", "KEY", "CHECK", "CONSTRAINT"):
        _to_comma(cursor)
        return
    cursor.take("COLUMN")
    cursor.take("IF", "EXISTS")
    name = cursor.name()
    known = table.column(name)
    visible = cursor.at("SET", "VISIBLE")
    if known is not None and (visible or cursor.at("SET", "INVISIBLE")):
        plan.changed[known.name] = replace(plan.changed.get(known.name, known), invisible=not visible)
    _to_comma(cursor)


def _to_comma(cursor: Cursor) -> None:
    depth = 0
    while (token := cursor.peek()).kind is not TokenKind.END:
        if depth == 0 and token.key in (",", ";"):
            return
        cursor.next()
        depth += {"(": 1, ")": -1}.get(token.key, 0)


def _rename(cursor: Cursor, plan: _Plan, table: TableDefinition) -> None:
    if cursor.take("COLUMN"):
        lenient = cursor.take("IF", "EXISTS")
        old = cursor.name()
        cursor.expect("TO")
        new = cursor.name()
        known = table.column(old)
        if known is not None:
            plan.changed[known.name] = replace(plan.changed.get(known.name, known), name=new)
        elif not lenient:
            raise Unparsable(f"the tracked structure has no column {old!r}")
    elif cursor.take_any("INDEX", "KEY"):
        cursor.take("IF", "EXISTS")
        old = cursor.name()
        cursor.expect("TO")
        plan.renamed_keys[old.lower()] = cursor.name()
    else:
        cursor.take_any("TO", "AS", "=")
        cursor.table()


# carrying it out ------------------------------------------------------------------------------------


def _carried_out(plan: _Plan, table: TableDefinition, session: Session) -> TableDefinition:
    places = _columns(plan, table)
    columns = [place.column for place in places]
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
        for key in (_kept(key, plan, table, places, new, session) for key in table.keys)
        if key is not None
    ]
    if not table.whole and (plan.dropped_keys or plan.dropped or (plan.changed and not kept)):
        raise Unparsable("it may make another key the first one, and not all keys of the table are known")
    # The primary key first: its columns are NOT NULL, whatever a part says of them.
    old = [key for key in kept if key.kind == "primary"] + [key for key in kept if key.kind != "primary"]
    return with_keys(new, [*old, *plan.keys], session)


def _columns(plan: _Plan, table: TableDefinition) -> list[_Place]:
    places = [
        _Place(column.name, column, plan.changed.get(column.name, column))
        for column in table.columns
        if index_of(plan.dropped, column.name) < 0
    ]
    for placed, position in plan.placed:
        if isinstance(placed, str):
            place = next(known for known in places if known.name == placed)
            places.remove(place)
        else:
            place = _Place(placed.name, None, placed)
        if position is None:
            places.append(place)
        elif not position:
            places.insert(0, place)
        else:
            after = index_of([known.column.name for known in places], position[0])
            if after < 0:
                raise Unparsable(f"the tracked structure has no column {position[0]!r}")
            places.insert(after + 1, place)
    return places


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
    places: list[_Place],
    new: TableDefinition,
    session: Session,
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
        found = index_of([place.name for place in places], part.name)
        if found < 0:
            continue
        old, column, prefix = places[found].old, new.columns[found], part.prefix
        if old is None:
            prefix = _taken_over(part, table, column)
        elif places[found].column is not old:
            prefix = _new_prefix(prefix, old if session.flavor == "mysql" else None, column)
        parts.append(KeyPart(column.name, prefix))
    name = plan.renamed_keys.get(key.name.lower(), key.name)
    named = key.named or key.name.lower() in plan.renamed_keys
    # MariaDB keeps no USING HASH that the statement itself does not say; other ALTERs lose it as well, or not:
    # the next TABLE_MAP tells.
    hashed = key.hash and not plan.rebuilds
    return replace(key, name=name, named=named, parts=tuple(parts), hash=hashed) if parts else None
