"""Reads column types in the text of a DDL: their names, arguments and character sets, in both servers' grammars.

Source: MySQL and MariaDB ``sql/sql_yacc.yy``, ``field_type`` and the rules below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from schemas.charsets.collations import CHARSETS, MAX_CHARACTER_BYTES
from schemas.charsets.text import holds
from schemas.ddl.cursor import Cursor, Unparsable
from schemas.ddl.lexer import NO_BACKSLASH_ESCAPES, Flavor, Token, TokenKind, dialect_of
from schemas.ddl.table_definition import CHARACTER, ColumnDefinition

_REAL_AS_FLOAT, _ORACLE, _MAXDB = 0x1, 0x200, 0x1000
# MariaDB: the meanings of words under the sql_mode ORACLE, and under ORACLE or MAXDB, or with their schemas.
_ORACLE_WORDS = {"VARCHAR2": "VARCHAR", "RAW": "VARBINARY", "CLOB": "LONGTEXT"}
_TRANSLATED = {("ORACLE", "DATE"): "DATETIME", ("MAXDB", "TIMESTAMP"): "DATETIME"}

#: the one name of each type of numbers, by the words that DDL has for it
NUMBERS = {
    **dict.fromkeys(("TINYINT", "INT1"), "tinyint"),
    **dict.fromkeys(("SMALLINT", "INT2"), "smallint"),
    **dict.fromkeys(("MEDIUMINT", "INT3", "MIDDLEINT"), "mediumint"),
    **dict.fromkeys(("INT", "INTEGER", "INT4"), "int"),
    **dict.fromkeys(("BIGINT", "INT8"), "bigint"),
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC", "FIXED"), "decimal"),
    **dict.fromkeys(("FLOAT", "FLOAT4"), "float"),
    **dict.fromkeys(("DOUBLE", "FLOAT8", "REAL"), "double"),
}
_PLAIN = {
    **{word: word.lower() for word in ("DATE", "JSON", "UUID", "INET4", "INET6")},
    **dict.fromkeys(
        ("GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON"),
        "geometry",
    ),
    **dict.fromkeys(("GEOMETRYCOLLECTION", "GEOMCOLLECTION"), "geometry"),
}
_FRACTIONAL = {word: word.lower() for word in ("TIME", "DATETIME", "TIMESTAMP")}
_SIZED = {"TINY": 1, "": 2, "MEDIUM": 3, "LONG": 4}
_BLOBS = {
    f"{prefix}{base}": (base.lower(), size) for prefix, size in _SIZED.items() for base in ("TEXT", "BLOB")
}
_OTHERS = frozenset(
    {
        *("ENUM", "SET", "BINARY", "VARBINARY", "BIT", "VECTOR", "SERIAL", "LONG", "BOOL", "BOOLEAN", "YEAR"),
        *("CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER", "NATIONAL", "NCHAR", "NVARCHAR"),
    }
)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
# A longer VARCHAR becomes a TEXT, unless the session is strict.
_MAX_VARCHAR = 65_535
# The default dimension of a VECTOR.
_VECTOR_LENGTH = 2048

# Character sets in which the bytes of ASCII have another meaning.
_NOT_ASCII = frozenset({"ucs2", "utf16", "utf16le", "utf32", "swe7"})

CHARSET_NAMES = frozenset(CHARSETS.values())


@dataclass(frozen=True)
class DdlContext:
    """The session's settings on which the meaning of a DDL's text depends.

    Attributes:
        sql_mode: the bit set.
        explicit_timestamps: explicit_defaults_for_timestamp; None if it is not in the log.
        server_charset: of collation_server; None if it is not in the log.
        from_show_create: whether the text is from SHOW CREATE TABLE, which writes every NOT NULL.
    """

    flavor: Flavor
    default_db: str = ""
    sql_mode: int = 0
    explicit_timestamps: bool | None = None
    server_charset: str | None = None
    from_show_create: bool = False

    @property
    def escapes(self) -> bool:
        """Whether a backslash in a string is an escape."""
        return not self.sql_mode & NO_BACKSLASH_ESCAPES


def charset_named(name: str, session: DdlContext) -> str:
    """Normalize the name of a character set. Raises Unparsable."""
    name = name.lower()
    if name == "utf8":
        return "utf8mb3"
    if name not in CHARSET_NAMES:
        raise Unparsable(f"unknown character set {name!r}")
    return name


def charset_of_collation(name: str, default: str | None) -> str | None:
    """Return the character set of a collation; MariaDB's collations without one leave it unchanged."""
    name = name.lower()
    first = name.partition("_")[0]
    if first.startswith("uca1400"):
        return default
    first = "utf8mb3" if first == "utf8" else first
    if first not in CHARSET_NAMES:
        raise Unparsable(f"unknown collation {name!r}")
    return first


def string_value(token: Token, escapes: bool) -> str:
    """Return the value of a quoted string."""
    quote, text = token.text[0], token.text[1:-1]
    out, i = [], 0
    while i < len(text):
        if text[i] == "\\" and escapes:
            out.append(_ESCAPES.get(text[i + 1], text[i + 1]))
            i += 2
            continue
        out.append(text[i])
        i += 2 if text[i] == quote else 1
    return "".join(out)


def word_or_string(cursor: Cursor, session: DdlContext) -> str:
    """Read a name that may be in quotes of either kind."""
    if cursor.peek().kind is TokenKind.STRING:
        return string_value(cursor.next(), session.escapes)
    return cursor.name()


def skip_group(cursor: Cursor, *, opened: bool = False) -> None:
    """Skip a parenthesis with its contents, or the rest of one that is already open."""
    depth = int(opened)
    while True:
        token = cursor.next()
        if token.kind is TokenKind.END:
            raise Unparsable("parentheses do not match")
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        if depth == 0:
            return


def is_type(word: str) -> bool:
    """Whether a type starts with this word, which is in capitals."""
    return any(word in known for known in (NUMBERS, _PLAIN, _FRACTIONAL, _BLOBS, _OTHERS))


def look_ahead(cursor: Cursor, session: DdlContext) -> Cursor:
    """Return another cursor at the same position."""
    ahead = Cursor(cursor.statement, dialect_of(session.flavor, session.sql_mode), session.default_db or "?")
    while ahead.peek().start < cursor.peek().start:
        ahead.next()
    return ahead


def keeps_history(words: Sequence[str]) -> bool:
    """Whether WITH SYSTEM VERSIONING is among a table's options."""
    return ("WITH", "SYSTEM", "VERSIONING") in zip(words, words[1:], words[2:], strict=False)


def column_type(cursor: Cursor, name: str, session: DdlContext, charset: str | None) -> ColumnDefinition:
    """Read a column's type with its arguments and character set.

    Args:
        charset: for columns without one.

    Raises:
        Unparsable: the type is unknown.
    """
    schema = _schema(cursor, session)
    word = cursor.next()
    if word.kind is not TokenKind.WORD:
        raise Unparsable(f"expected a type, found {word.text!r}")
    column = _type(cursor, _meant(cursor, word.key, schema, session), name, session)
    if column.charset is None:
        column = _character(cursor, column, session, charset)
    return column


def _schema(cursor: Cursor, session: DdlContext) -> str:
    """Return which server's types are meant, by a schema before the type or else by the session's sql_mode."""
    if session.flavor == "mysql":
        return ""
    for schema in ("MARIADB", "ORACLE", "MAXDB"):
        if cursor.take(f"{schema}_SCHEMA", "."):
            return schema
    return "ORACLE" if session.sql_mode & _ORACLE else "MAXDB" if session.sql_mode & _MAXDB else "MARIADB"


def _meant(cursor: Cursor, word: str, schema: str, session: DdlContext) -> str:
    """Return the type's name under the default sql_mode. Source: MariaDB sql/sql_yacc.yy and sql/sql_schema.cc."""
    if session.flavor == "mariadb" and session.sql_mode & _ORACLE:
        if word == "NUMBER":
            return "DECIMAL" if cursor.at("(") else "DOUBLE"
        if word == "BLOB" and not cursor.at("("):
            return "LONGBLOB"
        word = _ORACLE_WORDS.get(word, word)
    return _TRANSLATED.get((schema, word), word)


def _type(cursor: Cursor, word: str, name: str, session: DdlContext) -> ColumnDefinition:
    """Read everything that does not depend on the character set; types that have one get the charset None."""
    if word in NUMBERS:
        return _number(cursor, word, name, session)
    if word in _FRACTIONAL:
        return ColumnDefinition(name, _FRACTIONAL[word], _argument(cursor) or 0)
    if word in _PLAIN:
        # MariaDB's JSON is an alias of LONGTEXT.
        if word == "JSON" and session.flavor == "mariadb":
            return ColumnDefinition(name, "text", 4, charset="utf8mb4")
        return ColumnDefinition(name, _PLAIN[word])
    if word in _BLOBS:
        base, size = _BLOBS[word]
        length = _argument(cursor)
        size = 0 if length is not None and word in ("TEXT", "BLOB") else size
        return ColumnDefinition(name, base, size, charset=None if base == "text" else "binary")
    if word in ("ENUM", "SET"):
        return ColumnDefinition(name, word.lower(), charset=None, members=_members(cursor, session))
    if word in ("BINARY", "VARBINARY"):
        length = _argument(cursor)
        return _blob_if_long(
            ColumnDefinition(name, word.lower(), 1 if length is None else length, charset="binary")
        )
    simple = {
        "BIT": lambda: ColumnDefinition(name, "bit", _argument(cursor) or 1),
        "VECTOR": lambda: ColumnDefinition(name, "vector", _argument(cursor) or _VECTOR_LENGTH),
        "SERIAL": lambda: ColumnDefinition(name, "bigint", unsigned=True, nullable=False),
        "LONG": lambda: _long(cursor, name),
    }
    if word in ("BOOL", "BOOLEAN"):
        return ColumnDefinition(name, "tinyint")
    if word == "YEAR":
        _argument(cursor)
        return _unsigned(cursor, ColumnDefinition(name, "year"))
    return simple[word]() if word in simple else _string(cursor, word, name)


def _number(cursor: Cursor, word: str, name: str, session: DdlContext) -> ColumnDefinition:
    base = NUMBERS[word]
    if word == "DOUBLE":
        cursor.take("PRECISION")
    if word == "REAL" and session.sql_mode & _REAL_AS_FLOAT:
        base = "float"
    precision, scale = _arguments(cursor)
    if base == "decimal":
        return _unsigned(cursor, ColumnDefinition(name, base, precision or 10, scale or 0))
    # In FLOAT(p), p is the number of bits.
    if base == "float" and scale is None and precision is not None and precision > 24:
        base = "double"
    return _unsigned(cursor, ColumnDefinition(name, base))


def _unsigned(cursor: Cursor, column: ColumnDefinition) -> ColumnDefinition:
    unsigned = False
    while word := cursor.take_any("UNSIGNED", "SIGNED", "ZEROFILL"):
        unsigned = unsigned or word != "SIGNED"
    return replace(column, unsigned=unsigned and column.type != "year")


def _arguments(cursor: Cursor) -> tuple[int | None, int | None]:
    if not cursor.take("("):
        return None, None
    first = _integer(cursor)
    second = _integer(cursor) if cursor.take(",") else None
    cursor.expect(")")
    return first, second


def _argument(cursor: Cursor) -> int | None:
    return _arguments(cursor)[0]


def _integer(cursor: Cursor) -> int:
    token = cursor.next()
    if not (token.text.isascii() and token.text.isdecimal()):
        raise Unparsable(f"expected a number, found {token.text!r}")
    return int(token.text)


def _members(cursor: Cursor, session: DdlContext) -> tuple[str, ...]:
    cursor.expect("(")
    members = []
    while True:
        cursor.take_any("N", *(f"_{charset}".upper() for charset in ("utf8mb4", "utf8mb3", "utf8")))
        token = cursor.next()
        if token.kind is not TokenKind.STRING:
            raise Unparsable(f"expected a member of ENUM or SET, found {token.text!r}")
        members.append(string_value(token, session.escapes))
        if not cursor.take(","):
            cursor.expect(")")
            return tuple(members)


def _long(cursor: Cursor, name: str) -> ColumnDefinition:
    """Read LONG, LONG VARCHAR and LONG VARBINARY."""
    if cursor.take("VARBINARY"):
        return ColumnDefinition(name, "blob", 3, charset="binary")
    if cursor.take_any("CHAR", "CHARACTER"):
        cursor.expect("VARYING")
    else:
        cursor.take("VARCHAR")
    return ColumnDefinition(name, "text", 3, charset=None)


def _string(cursor: Cursor, word: str, name: str) -> ColumnDefinition:
    """Read CHAR and VARCHAR in all their spellings."""
    national = word in ("NATIONAL", "NCHAR", "NVARCHAR")
    if word == "NATIONAL":
        word = cursor.next().key
    if word in ("CHAR", "CHARACTER", "NCHAR"):
        varying = bool(cursor.take_any("VARYING", *(("VARCHAR", "VARCHARACTER") if word == "NCHAR" else ())))
    elif word in ("VARCHAR", "VARCHARACTER", "NVARCHAR"):
        varying = True
    else:
        raise Unparsable(f"unknown type {word!r}")
    length = _argument(cursor)
    charset = "utf8mb3" if national else None
    if national:
        cursor.take("BINARY")
    return ColumnDefinition(
        name, "varchar" if varying else "char", 1 if length is None else length, charset=charset
    )


def _character(
    cursor: Cursor, column: ColumnDefinition, session: DdlContext, default: str | None
) -> ColumnDefinition:
    """Read the options directly after a character type, such as the character set."""
    charset, bare = default, True
    while True:
        if cursor.take("CHARACTER", "SET") or cursor.take("CHAR", "SET") or cursor.take("CHARSET"):
            charset, bare = charset_named(word_or_string(cursor, session), session), False
        elif word := cursor.take_any("ASCII", "UNICODE", "BYTE"):
            charset, bare = {"ASCII": "latin1", "UNICODE": "ucs2", "BYTE": "binary"}[word], False
        elif cursor.take("COMPRESSED"):
            cursor.take("=")
            cursor.take("ZLIB")
            column = replace(column, compressed=True)
        elif not cursor.take("BINARY"):
            break
    if cursor.take("COLLATE") and not cursor.take("DEFAULT"):
        found = charset_of_collation(word_or_string(cursor, session), charset)
        charset = found if bare or found is None else charset
    return in_charset(replace(column, charset=charset))


def in_charset(column: ColumnDefinition) -> ColumnDefinition:
    """Adapt the type to the character set: BINARY for CHAR in ``binary``, TEXT for a VARCHAR that is too long."""
    if column.charset == "binary":
        binary = {"char": "binary", "varchar": "varbinary", "text": "blob"}
        column = replace(column, type=binary.get(column.type, column.type))
    elif column.type in ("enum", "set"):
        column = replace(column, members=tuple(member.rstrip(" ") for member in column.members))
    _check_members(column)
    return _blob_if_long(column)


def _check_members(column: ColumnDefinition) -> None:
    """Raise Unparsable for members with characters that the character set may lack: servers replace them by ?."""
    if column.members and column.charset is not None and not holds("".join(column.members), column.charset):
        raise Unparsable(f"the members of {column.name} have characters that {column.charset} may lack")


def _blob_if_long(column: ColumnDefinition) -> ColumnDefinition:
    if column.type not in ("varchar", "varbinary", "char", "binary"):
        return column
    size = MAX_CHARACTER_BYTES.get(column.charset or "", 1) * (column.length or 0)
    if size <= _MAX_VARCHAR and (column.type in ("varchar", "varbinary") or (column.length or 0) <= 255):
        return column
    return replace(column, type="blob" if column.charset == "binary" else "text", length=0)


def converted(column: ColumnDefinition, charset: str | None) -> ColumnDefinition:
    """Return the column after CONVERT TO CHARACTER SET, which may need a larger TEXT type.

    Raises:
        Unparsable: both servers read the bytes of its members as other text in the new character set.
    """
    if column.type not in CHARACTER or column.charset == "binary":
        return column
    if column.members and charset != column.charset:
        other = not "".join(column.members).isascii() or _NOT_ASCII.intersection((charset, column.charset))
        if other or charset is None or column.charset is None:
            raise Unparsable(f"the members of {column.name} became others in another character set")
    length = 0 if column.type == "text" else column.length
    return in_charset(replace(column, charset=charset, length=length))
