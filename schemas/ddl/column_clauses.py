"""Reads columns and keys in the text of a DDL: the parts between the commas of CREATE TABLE and ALTER TABLE."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from schemas.ddl.column_types import (
    DdlContext,
    charset_of_collation,
    column_type,
    in_charset,
    is_type,
    skip_group,
    word_or_string,
)
from schemas.ddl.cursor import Cursor, Unparsable
from schemas.ddl.lexer import TokenKind
from schemas.ddl.table_definition import CHARACTER, ColumnDefinition, KeyDefinition, KeyPart

KeyKind = Literal["primary", "unique", "other"]

#: reserved words with which something else than a column begins.
NOT_COLUMNS = frozenset(
    {
        *("PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN"),
        *("CHECK", "LIKE"),
    }
)
_SKIPPED = frozenset({"ENFORCED", "ALWAYS", "VALUE"})
# One word or string follows, possibly after an equals sign.
_VALUED = frozenset(
    {
        "COMMENT",
        "COLUMN_FORMAT",
        "STORAGE",
        "SRID",
        "REF_SYSTEM_ID",
        "ENGINE_ATTRIBUTE",
        "SECONDARY_ENGINE_ATTRIBUTE",
    }
)
_ENDS = frozenset({",", ")", ";", "FIRST", "AFTER", "PARTITION"})


@dataclass
class TableElement:
    """The contents of one part: a column and its position, and keys.

    Attributes:
        position: ``FIRST``, or the name after AFTER; None without either.
        keys: without the names that the server generates.
        foreign: whether it has a foreign key.
        period: the columns of MariaDB's application-time period.
        versioned: whether its column makes the table system-versioned.
    """

    column: ColumnDefinition | None = None
    position: tuple[str, ...] | None = None
    keys: list[KeyDefinition] = field(default_factory=list)
    foreign: bool = False
    if_not_exists: bool = False
    period: tuple[str, ...] = ()
    versioned: bool = False


def at_column(cursor: Cursor) -> bool:
    """Whether the next part is a column, and not a key, a constraint or a period."""
    first, second = cursor.peek(), cursor.peek(1)
    if first.key == "PERIOD":
        return second.key not in ("FOR", "IF")
    if first.key == "VECTOR":
        named = cursor.peek(2).key == "(" and not is_type(second.key)
        return not (second.key in ("INDEX", "KEY", "(") or second.kind is TokenKind.QUOTED or named)
    return first.key not in NOT_COLUMNS


def column_element(cursor: Cursor, session: DdlContext, charset: str | None) -> TableElement:
    """Read a column: name, type, attributes, FIRST or AFTER.

    Raises:
        Unparsable: an unknown clause.
    """
    name = cursor.name()
    part = TableElement()
    serial = cursor.at("SERIAL")
    column = column_type(cursor, name, session, charset)
    if serial:
        part.keys.append(_own_key("unique", name))
    nullable = column.nullable if serial else None
    while cursor.peek().kind is not TokenKind.END and cursor.peek().key not in _ENDS:
        found = _attribute(cursor, session, column, part)
        if isinstance(found, bool):
            nullable = found
        elif found is not None:
            column = found
    if nullable is None:
        # A TIMESTAMP without NULL is NOT NULL, depending on the session.
        # In MariaDB generated columns are an exception.
        written = not column.generated or session.flavor == "mysql"
        implicit = column.type == "timestamp" and not session.explicit_timestamps and written
        nullable = None if implicit else True
        if implicit and session.explicit_timestamps is False:
            nullable = False
    if any(key.kind == "primary" for key in part.keys):
        nullable = False
    # UNIQUE may occur twice but is one key; on MariaDB it adds no key beside PRIMARY KEY.
    primary = [key for key in part.keys if key.kind == "primary"] if session.flavor == "mariadb" else []
    part.keys = list(dict.fromkeys(primary or part.keys))
    part.column = replace(column, nullable=nullable)
    part.position = _position(cursor)
    return part


def _position(cursor: Cursor) -> tuple[str, ...] | None:
    if cursor.take("FIRST"):
        return ()
    if cursor.take("AFTER"):
        return (cursor.name(),)
    return None


def _own_key(kind: KeyKind, column: str) -> KeyDefinition:
    return KeyDefinition("", kind, (KeyPart(column),), named=False)


def _attribute(
    cursor: Cursor, session: DdlContext, column: ColumnDefinition, part: TableElement
) -> ColumnDefinition | bool | None:
    """Read one attribute: returns the changed column, or whether it may be NULL, or None if nothing changes."""
    if cursor.take("NOT"):
        if cursor.take("NULL"):
            return False
        if not cursor.take_any("ENFORCED", "SECONDARY"):
            raise Unparsable(f"NOT {cursor.peek().text!r}")
    elif cursor.take("NULL"):
        return True
    elif cursor.take("AUTO_INCREMENT"):
        return None if session.from_show_create else False
    elif cursor.take("DEFAULT"):
        _default(cursor)
    elif cursor.take("SERIAL", "DEFAULT", "VALUE"):
        part.keys.append(_own_key("unique", column.name))
        return False
    elif cursor.take("ON", "UPDATE"):
        _default(cursor)
    elif cursor.take("PRIMARY"):
        cursor.take("KEY")
        part.keys.append(_own_key("primary", column.name))
    elif cursor.take("UNIQUE"):
        cursor.take("KEY")
        part.keys.append(_own_key("unique", column.name))
    elif cursor.take("KEY"):
        part.keys.append(_own_key("primary", column.name))
    else:
        return _more(cursor, session, column, part)
    return None


def _more(
    cursor: Cursor, session: DdlContext, column: ColumnDefinition, part: TableElement
) -> ColumnDefinition | None:
    """Read one of the less frequent attributes."""
    if cursor.take("COLLATE"):
        if cursor.take("DEFAULT"):
            return None
        charset = charset_of_collation(word_or_string(cursor, session), column.charset)
        return in_charset(replace(column, charset=charset)) if column.type in CHARACTER else column
    if cursor.take("GENERATED") or cursor.at("AS"):
        cursor.take("ALWAYS")
        cursor.expect("AS")
        if not cursor.at("("):
            raise Unparsable("columns of a period")
        skip_group(cursor)
        return replace(column, generated="stored" if cursor.take_any("STORED", "PERSISTENT") else "virtual")
    if cursor.take_any("STORED", "PERSISTENT"):
        return replace(column, generated="stored")
    if cursor.take("VIRTUAL"):
        return replace(column, generated="virtual")
    if word := cursor.take_any("INVISIBLE", "VISIBLE"):
        return replace(column, invisible=word == "INVISIBLE")
    if cursor.take("COMPRESSED"):
        if cursor.take("="):
            cursor.name()
        return replace(column, compressed=True)
    if cursor.take("REFERENCES"):
        references(cursor)
        # MySQL parses and ignores it before version 9; MariaDB creates a key.
        part.foreign = True
    elif cursor.take("CONSTRAINT"):
        if not cursor.at("CHECK"):
            cursor.name()
    elif cursor.take("CHECK"):
        skip_group(cursor)
    elif cursor.take("WITH", "SYSTEM", "VERSIONING"):
        part.versioned = True
    elif cursor.take("WITHOUT", "SYSTEM", "VERSIONING"):
        return None
    elif word := cursor.take_any(*_VALUED):
        cursor.take("=")
        if cursor.next().kind is TokenKind.END:
            raise Unparsable(f"{word} without its value")
    elif not cursor.take_any(*_SKIPPED):
        _engine_option(cursor, session)
    return None


def _engine_option(cursor: Cursor, session: DdlContext) -> None:
    """Skip MariaDB's ``option=value`` of an engine."""
    if session.flavor == "mariadb" and cursor.peek(1).key == "=":
        for _ in range(3):
            cursor.next()
        return
    raise Unparsable(f"unknown attribute {cursor.peek().text!r}")


def _default(cursor: Cursor) -> None:
    """Skip a default: a parenthesis, a literal with its sign and introducer, or a function call."""
    cursor.take_any("+", "-")
    if cursor.at("("):
        return skip_group(cursor)
    if cursor.take("NEXT", "VALUE", "FOR"):
        cursor.table()
        cursor.references.pop()
        return None
    first = cursor.next()
    if first.kind is TokenKind.END:
        raise Unparsable("DEFAULT without a value")
    if first.kind is not TokenKind.STRING and (first.text == "." or first.text[:1].isdigit()):
        return _number_behind(cursor)
    while cursor.take("."):
        cursor.next()
    if cursor.at("("):
        skip_group(cursor)
    while cursor.peek().kind is TokenKind.STRING:
        cursor.next()
    return None


def _number_behind(cursor: Cursor) -> None:
    """Skip the rest of a number: the lexer splits 1.5e-3 into words and signs."""
    last = cursor.peek()
    while (last.text[:1].isdigit() or last.key in (".", "-", "+")) and last.kind is not TokenKind.STRING:
        cursor.next()
        last = cursor.peek()


def references(cursor: Cursor) -> None:
    """Skip the clauses after REFERENCES."""
    cursor.table()
    cursor.references.pop()
    if cursor.at("("):
        skip_group(cursor)
    while True:
        if cursor.take("MATCH"):
            cursor.next()
        elif cursor.take("ON", "DELETE") or cursor.take("ON", "UPDATE"):
            if not cursor.take_any("RESTRICT", "CASCADE"):
                cursor.next()
                cursor.next()
        else:
            return


def key_element(cursor: Cursor) -> TableElement:
    """Read a key or a constraint of the table.

    Raises:
        Unparsable: an unknown clause.
    """
    part = TableElement()
    symbol = None
    if cursor.take("CONSTRAINT"):
        part.if_not_exists = _if_not_exists(cursor)
        if cursor.peek().key not in NOT_COLUMNS:
            symbol = cursor.name()
    if cursor.take("CHECK"):
        skip_group(cursor)
        cursor.take("NOT")
        cursor.take("ENFORCED")
    elif cursor.take("FOREIGN", "KEY"):
        _if_not_exists(cursor)
        if not cursor.at("("):
            cursor.name()
        skip_group(cursor)
        cursor.expect("REFERENCES")
        references(cursor)
        part.foreign = True
    elif cursor.take("PERIOD"):
        part.period = _period(cursor)
    else:
        part.keys.append(_key(cursor, symbol, part))
    return part


def _period(cursor: Cursor) -> tuple[str, ...]:
    _if_not_exists(cursor)
    cursor.expect("FOR")
    if cursor.name().upper() == "SYSTEM_TIME":
        raise Unparsable("system versioning")
    return tuple(part.name for part in key_columns(cursor))


def _if_not_exists(cursor: Cursor) -> bool:
    return cursor.take("IF", "NOT", "EXISTS")


def _key(cursor: Cursor, symbol: str | None, part: TableElement) -> KeyDefinition:
    kind: KeyKind = "other"
    if cursor.take("PRIMARY", "KEY"):
        kind = "primary"
    elif cursor.take("UNIQUE"):
        kind = "unique"
        cursor.take_any("KEY", "INDEX")
    elif cursor.take_any("FULLTEXT", "SPATIAL", "VECTOR"):
        cursor.take_any("KEY", "INDEX")
    elif not cursor.take_any("KEY", "INDEX"):
        raise Unparsable(f"expected a key, found {cursor.peek().text!r}")
    part.if_not_exists = _if_not_exists(cursor) or part.if_not_exists
    name = symbol
    if not cursor.at("(") and not (cursor.peek().key in ("USING", "TYPE") and cursor.peek(2).key == "("):
        name = cursor.name()
    hashed = using_hash(cursor)
    parts = key_columns(cursor)
    hashed = key_options(cursor, hashed)
    if kind == "primary":
        name = "PRIMARY"
    hashed = hashed and kind == "unique" and cursor.flavor == "mariadb"
    return KeyDefinition(name or "", kind, parts, named=name is not None, hash=hashed)


def using_hash(cursor: Cursor) -> bool:
    """Skip ``USING …`` before a key's columns. Returns whether it is HASH."""
    return bool(cursor.take_any("USING", "TYPE")) and cursor.name().upper() == "HASH"


def key_columns(cursor: Cursor) -> tuple[KeyPart, ...]:
    """Read ``(a, b(10) DESC, (expression))``."""
    cursor.expect("(")
    parts = []
    while True:
        if cursor.at("("):
            skip_group(cursor)
            parts.append(KeyPart(""))
        else:
            name, prefix = cursor.name(), None
            if cursor.take("("):
                prefix = int(cursor.next().text)
                cursor.expect(")")
            if cursor.take("WITHOUT", "OVERLAPS"):
                raise Unparsable("a key of a period")
            parts.append(KeyPart(name, prefix))
        cursor.take_any("ASC", "DESC")
        if cursor.take(","):
            continue
        cursor.expect(")")
        return tuple(parts)


_KEY_OPTIONS = frozenset(
    {
        *("KEY_BLOCK_SIZE", "COMMENT", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"),
        *("WITH", "PARSER", "CLUSTERING", "DISTANCE", "M"),
    }
)


def key_options(cursor: Cursor, hashed: bool = False) -> bool:
    """Skip the options after a key's columns. Returns whether the key finally has USING HASH.

    Args:
        hashed: whether USING HASH precedes the columns.
    """
    while True:
        if cursor.take_any("VISIBLE", "INVISIBLE", "IGNORED"):
            continue
        if cursor.take("NOT"):
            cursor.expect("IGNORED")
            continue
        if cursor.take("WITH", "PARSER"):
            cursor.name()
        elif cursor.at("USING") or cursor.at("TYPE"):
            hashed = using_hash(cursor)
        elif cursor.take_any(*_KEY_OPTIONS):
            cursor.take("=")
            cursor.next()
        else:
            return hashed
