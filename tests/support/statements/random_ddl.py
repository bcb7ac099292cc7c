"""Makes random DDL in the servers' many spellings; most statements fit the existing tables."""

# Statements and lists of words read better in long lines.
# ruff: noqa: E501

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from schemas.ddl.lexer import ANSI_QUOTES, NO_BACKSLASH_ESCAPES
from schemas.ddl.table_definition import TableDefinition
from schemas.quote import quoted
from schemas.tables import QualifiedName

CHARSETS = ["latin1", "utf8mb4", "utf8mb3", "ucs2", "binary", "ascii", "utf8", "'utf16'", "sjis"]
_COLLATIONS = [
    "utf8mb4_bin", "latin1_german2_ci", "utf8mb3_bin", "ucs2_general_ci", "binary", "utf8mb4_general_ci", "cp1251_bin",
]  # fmt: skip
_TYPES = [
    "INT", "BIGINT UNSIGNED", "INTEGER(5) ZEROFILL", "INT SIGNED", "TINYINT", "INT3 UNSIGNED", "MIDDLEINT", "INT8",
    "BOOL", "BOOLEAN", "DEC(5)", "DEC(8,3) UNSIGNED", "FIXED(7,2) SIGNED", "NUMERIC", "DECIMAL(65,30)", "DECIMAL(0)",
    "FLOAT", "FLOAT(53)", "FLOAT(24)", "FLOAT(7,3) UNSIGNED", "FLOAT4", "FLOAT8", "DOUBLE PRECISION", "REAL", "DOUBLE(9,2)",
    "BIT", "BIT(12)", "YEAR", "DATE", "TIME", "TIME(2)", "DATETIME", "DATETIME(6)", "TIMESTAMP", "TIMESTAMP(3)",
    "TIMESTAMP NULL", "CHAR", "CHAR(4)", "CHARACTER(0)", "VARCHAR(20)", "VARCHAR(20)", "VARCHAR(255)", "VARCHAR(900)",
    "VARCHAR(20000)", "CHARACTER VARYING(7)", "CHAR VARYING(7)", "VARCHARACTER(6)", "NATIONAL CHAR(3)", "NCHAR VARYING(4)",
    "NATIONAL CHARACTER VARYING(9)", "NVARCHAR(4)", "NATIONAL VARCHAR(5)", "NCHAR VARCHAR(3)", "NCHAR",
    "BINARY", "BINARY(7)", "VARBINARY(9)", "VARBINARY(30000)", "TINYTEXT", "TEXT", "TEXT", "TEXT(20)", "TEXT(300)",
    "MEDIUMTEXT", "LONGTEXT", "TINYBLOB", "BLOB", "BLOB(70000)", "LONGBLOB", "LONG", "LONG VARCHAR", "LONG VARBINARY",
    "LONG CHAR VARYING", "JSON", "GEOMETRY", "POINT", "GEOMETRYCOLLECTION", "MULTIPOLYGON", "SERIAL",
]  # fmt: skip
_OWN_TYPES = {
    "mysql": ["GEOMCOLLECTION", "VECTOR(3)", "VECTOR", "POINT SRID 4326", "INT4 UNSIGNED"],
    "mariadb": ["UUID", "INET4", "INET6", "VARCHAR(20) COMPRESSED", "TEXT COMPRESSED", "BLOB COMPRESSED=zlib", "VECTOR(3)",
                "POINT REF_SYSTEM_ID=0", "DATETIME(2) DEFAULT CURRENT_TIMESTAMP(2)"],
}  # fmt: skip
#: bit of MariaDB's sql_mode
ORACLE = 0x200
_ORACLE_TYPES = [
    "DATE", "BLOB", "CLOB", "NUMBER", "NUMBER(7)", "NUMBER(7,2) UNSIGNED", "RAW(9)", "VARCHAR2(10)", "mariadb_schema.DATE",
    "BLOB(300)", "CLOB CHARACTER SET latin1", "VARCHAR2(9) COLLATE utf8mb4_bin", "oracle_schema.DATE", "mariadb_schema.BLOB",
]  # fmt: skip
_TEXTS = (
    "CHAR",
    "VARCHAR",
    "TEXT",
    "ENUM",
    "SET",
    "LONG",
    "TINYTEXT",
    "MEDIUMTEXT",
    "LONGTEXT",
    "CHARACTER",
    "NCHAR",
)
_BARE = ["a", "b", "c", "d", "e", "B", "A_2", "comment", "value", "data", "date", "timestamp", "text", "period", "invisible",
         "visible", "enum", "json", "storage", "engine", "charset", "byte", "after", "first", "national", "bool", "bit",
         "persistent", "always", "start", "end", "type", "serial", "unicode", "$x", "column_format", "vector", "system",
         "algorithm", "versioning", "without", "1st", "names", "position", "identified", "enforced", "expire"]  # fmt: skip
_QUOTED = [
    "select",
    "ä ö",
    "x`y",
    'q"r',
    "key",
    "check",
    "primary",
    "a b",
    "unique",
    "İ",
    "größe",
    "like",
    "'",
    "0",
    "-- ",
]


class Maker:
    """Makes random statements.

    Args:
        tables: the existing tables, as far as they are known.
        sql_mode: the session's, which determines quotes and backslashes.
    """

    def __init__(
        self,
        rng: random.Random,
        flavor: str,
        db: str,
        tables: Callable[[], Mapping[QualifiedName, Any]],
        sql_mode: int = 0,
    ) -> None:
        self.rng, self.flavor, self.db, self._tables = rng, flavor, db, tables
        self.ansi, self.escapes = bool(sql_mode & ANSI_QUOTES), not sql_mode & NO_BACKSLASH_ESCAPES
        self.oracle = bool(sql_mode & ORACLE)
        self.table = ""
        self.maria = flavor == "mariadb"

    # -- pieces ----------------------------------------------------------------------------------

    def one(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def some(self, likely: float, text: str) -> str:
        return text if self.rng.random() < likely else ""

    def quoted(self, name: str) -> str:
        """Return a name in one of its spellings."""
        if name in _BARE and self.rng.random() < 0.6:
            return name
        if self.ansi and self.rng.random() < 0.5:
            return '"' + name.replace('"', '""') + '"'
        return quoted(name)

    def text(self, *more: str) -> str:
        """Return a string in one of its spellings."""
        text = self.one(
            "x", "NOT NULL", "UNIQUE, PRIMARY KEY", "it's", 'a"b', "back\\slash", "", "(", "/* x", "ä", *more
        )
        quote = "'" if self.ansi else self.one("'", "'", '"')
        text = text.replace("\\", "\\\\") if self.escapes else text
        if self.escapes and self.rng.random() < 0.3:
            text = text.replace(quote, "\\" + quote)
        else:
            text = text.replace(quote, quote * 2)
        return f"{quote}{text}{quote}"

    def known(self) -> TableDefinition | None:
        found = self._tables().get((self.db, self.table))
        return found if isinstance(found, TableDefinition) else None

    def old_name(self) -> str:
        known = self.known()
        if known is None or self.rng.random() < 0.02:
            return "nobody"
        name = self.rng.choice(known.columns).name
        return self.one(name, name, name.upper()) if name.isascii() else name

    def old(self) -> str:
        """Return an existing column in any letter case."""
        name = self.old_name()
        return self.quoted(name) if name.lower() in _BARE else quoted(name)

    def new(self) -> str:
        name = self.rng.choice(_BARE if self.rng.random() < 0.75 else _QUOTED)
        return self.quoted(name)

    # -- columns ---------------------------------------------------------------------------------

    def members(self) -> str:
        return ", ".join(sorted({self.text("y ", "z", "p", "é", "q") for _ in range(self.one(1, 2, 3))}))

    def type(self) -> str:
        kind = self.rng.random()
        if kind < 0.1:
            text = f"{self.one('ENUM', 'SET')}({self.members()})"
        else:
            text = str(self.rng.choice(_TYPES if kind < 0.9 else _OWN_TYPES[self.flavor]))
        if self.oracle and kind > 0.7:
            text = str(self.rng.choice(_ORACLE_TYPES))
        if text.startswith(_TEXTS) and "COMPRESSED" not in text and self.rng.random() < 0.5:
            text += " " + self.charset()
        return text

    def charset(self) -> str:
        charset, collation = self.rng.choice(CHARSETS), self.rng.choice(_COLLATIONS)
        own = charset.strip("'")
        own = {"utf8": "utf8mb3"}.get(own, own)
        fitting = "binary" if own == "binary" else f"{own}_bin"
        return str(self.one(
            f"CHARACTER SET {charset}", f"CHARSET {charset}", f"CHAR SET {charset}", "ASCII", "UNICODE", "BYTE", "BINARY",
            f"CHARACTER SET {charset} BINARY", f"BINARY CHARACTER SET {charset}", "ASCII BINARY", "BINARY UNICODE",
            f"COLLATE {collation}", f"CHARACTER SET {charset} COLLATE {fitting}", "NOT NULL COLLATE " + collation,
            f"COLLATE '{collation}'", *(["COLLATE uca1400_ai_ci", "COLLATE DEFAULT"] if self.maria else []),
        ))  # fmt: skip

    def attributes(self) -> str:
        """Return any of them in any order."""
        both = [
            "NOT NULL", "NOT NULL", "NULL", "UNIQUE", "UNIQUE KEY", "NOT NULL UNIQUE", "PRIMARY KEY", "KEY", "DEFAULT NULL", "INVISIBLE",
            f"COMMENT {self.text()}", "DEFAULT 1", "DEFAULT -1.5e-3", f"DEFAULT {self.text()}", "DEFAULT (1 + 1)",
            "DEFAULT (concat('a', ',', ')'))", "DEFAULT b'101'", "DEFAULT x'41'", "DEFAULT 0x41", "DEFAULT TRUE",
            "DEFAULT CURRENT_TIMESTAMP", "DEFAULT NOW() ON UPDATE NOW()", "CHECK (1 > 0)",
            f"CONSTRAINT {self.new()} CHECK (1 IN (1, 2))", "AUTO_INCREMENT UNIQUE", f"REFERENCES t ({self.new()}) ON DELETE CASCADE",
            "AUTO_INCREMENT PRIMARY KEY", "SERIAL DEFAULT VALUE", "DEFAULT _latin1'x'", "DEFAULT date '2020-01-01'", "DEFAULT '1''2' '3'",
        ]  # fmt: skip
        own = {
            "mysql": ["VISIBLE", "COLUMN_FORMAT DYNAMIC", "STORAGE DISK", "CHECK (1) NOT ENFORCED", "ENGINE_ATTRIBUTE '{}'",
                      "DEFAULT (uuid())", "COLUMN_FORMAT DEFAULT"],
            "mariadb": ["DEFAULT uuid()", "DEFAULT NOW(3)", "DEFAULT CURRENT_DATE", "DEFAULT (1) ON UPDATE CURRENT_TIMESTAMP()",
                        "WITHOUT SYSTEM VERSIONING", "CHECK (1 BETWEEN 0 AND 2)", "DEFAULT 1 + 2"],
        }[self.flavor]  # fmt: skip
        found = [
            self.rng.choice(both if self.rng.random() < 0.85 else own)
            for _ in range(self.one(0, 0, 0, 1, 1, 2, 3))
        ]
        return " ".join(found)

    def generated(self, kind: str) -> str:
        collate = self.some(0.1, " COLLATE utf8mb4_bin") if kind.startswith(_TEXTS) else ""
        how = self.one("", " VIRTUAL", " STORED", *([" PERSISTENT"] if self.maria else []))
        ways = ["GENERATED ALWAYS AS", "AS"]
        behind = self.one(
            "",
            "",
            " UNIQUE",
            " COMMENT ','",
            " INVISIBLE",
            *([] if self.maria else [" NOT NULL", " UNIQUE NULL"]),
        )
        return f"{kind}{collate} {self.one(*ways)} ({self.one('1 + 1', 'concat(1, 2)', 'NULL', '((2))')}){how}{behind}"

    def column(self, name: str) -> str:
        kind = self.type()
        if self.rng.random() < 0.08:
            return f"{name} {self.generated(kind)}"
        return f"{name} {kind} {self.attributes()}"

    def place(self) -> str:
        return str(self.one("", "", "", " FIRST", f" AFTER {self.old()}"))

    # -- keys ------------------------------------------------------------------------------------

    def part_of_key(self, name: str = "") -> str:
        name = name or self.old()
        known = self.known()
        column = known.column(name.strip('`"')) if known else None
        if column is not None and column.type in ("text", "blob"):
            size = self.one("(5)", "(5)", "(5)", *([""] if self.maria else []))
        elif column is not None and column.type in ("varchar", "char", "binary", "varbinary"):
            size = self.one("", "", "", "(2)", "(20)")
        else:
            size = self.one(*[""] * 8, "(2)")
        if self.rng.random() < 0.04 and not self.maria:
            return f"(({name} + 1))"[1:-1] if name else ""
        return f"{name}{size}{self.one('', '', '', ' DESC', ' ASC')}"

    def key_parts(self, names: list[str] | None = None) -> str:
        count = self.one(1, 1, 2)
        parts = [self.part_of_key(name) for name in (names or [])[:count]] or [
            self.part_of_key() for _ in range(count)
        ]
        return "(" + ", ".join(parts) + ")"

    def key(self, names: list[str] | None = None) -> str:
        kind = self.one(
            "PRIMARY KEY", "PRIMARY KEY", "UNIQUE", "UNIQUE", "UNIQUE KEY k1", "CONSTRAINT k2 UNIQUE", "CONSTRAINT UNIQUE INDEX k6",
            "KEY", "INDEX k3", "CONSTRAINT `x y` PRIMARY KEY", "UNIQUE INDEX", "CONSTRAINT k7 UNIQUE KEY k8", "UNIQUE k1 USING BTREE",
            "PRIMARY KEY USING BTREE", "INDEX USING HASH", *(["UNIQUE KEY IF NOT EXISTS k1", "UNIQUE USING HASH", "UNIQUE USING HASH"] if self.maria else []),
        )  # fmt: skip
        behind = self.one(
            "",
            "",
            "",
            " USING BTREE",
            " COMMENT 'x'",
            " KEY_BLOCK_SIZE=4",
            *([" IGNORED"] if self.maria else [" INVISIBLE"]),
        )
        return f"{kind} {self.key_parts(names)}{behind}"

    def key_name(self) -> str:
        known = self.known()
        names = [key.name for key in known.keys if key.name != "PRIMARY"] if known else []
        return quoted(self.rng.choice(names) if names else "k1")

    # -- ALTER TABLE -----------------------------------------------------------------------------

    def options(self) -> str:
        charset, collation = self.rng.choice(CHARSETS), self.rng.choice(_COLLATIONS)
        return str(self.one(
            f"DEFAULT CHARACTER SET {charset}", f"CHARSET={charset}", f"DEFAULT CHARSET {charset}", f"COLLATE {collation}",
            f"DEFAULT COLLATE = {collation}", f"CHARACTER SET {charset}", "CHARACTER SET DEFAULT",
            "ENGINE=InnoDB COMMENT='DROP COLUMN a, ADD b INT'", "ROW_FORMAT=DYNAMIC", "AUTO_INCREMENT 7 ENGINE InnoDB",
            "STATS_PERSISTENT=DEFAULT, AVG_ROW_LENGTH=5", "ENGINE=MyISAM", f"COMMENT {self.text()}",
            *(["WITH SYSTEM VERSIONING"] if self.maria else []),
        ))  # fmt: skip

    def alter_part(self) -> str:
        charset = self.rng.choice(CHARSETS)

        def a() -> str:
            return str(self.one("COLUMN ", ""))

        both: list[Callable[[], str]] = [
            lambda: f"ADD {a()}{self.column(self.new())}{self.place()}",
            lambda: f"ADD {a()}{self.column(self.new())}{self.place()}",
            lambda: f"ADD {a()}{self.column(self.new())}{self.place()}",
            lambda: f"ADD {a()}({self.column(self.new())}, {self.column(self.new())})",
            lambda: f"ADD ({self.column('nn')}, UNIQUE (nn))",
            lambda: f"ADD {self.key()}", lambda: f"ADD {self.key()}", lambda: f"ADD {self.key()}",
            lambda: f"DROP {a()}{self.old()}", lambda: f"DROP {a()}{self.old()}{self.one('', ' RESTRICT', ' CASCADE')}",
            lambda: self.modify(a()), lambda: self.modify(a()), lambda: self.modify(a()),
            lambda: f"CHANGE {a()}{self.old()} {self.column(self.new())}{self.place()}",
            lambda: f"CHANGE {a()}{self.old()} {self.column(self.new())}{self.place()}",
            lambda: f"RENAME COLUMN {self.old()} TO {self.new()}", lambda: f"RENAME COLUMN {self.old()} TO {self.new()}",
            lambda: f"ALTER {a()}{self.old()} {self.one('SET DEFAULT NULL', 'DROP DEFAULT', 'SET DEFAULT 5', 'SET DEFAULT (1)')}",
            lambda: "DROP PRIMARY KEY", lambda: f"DROP PRIMARY KEY, ADD PRIMARY KEY {self.key_parts()}",
            lambda: f"DROP {self.one('INDEX', 'KEY')} {self.key_name()}", lambda: f"DROP CONSTRAINT {self.key_name()}",
            lambda: f"DROP INDEX {self.key_name()}, ADD UNIQUE {self.key_name()} {self.key_parts()}",
            lambda: f"RENAME {self.one('INDEX', 'KEY')} {self.key_name()} TO {self.one('k1', 'k4', '`K2`')}",
            lambda: f"CONVERT TO {self.one('CHARACTER SET', 'CHARSET')} {self.one(charset, charset, 'DEFAULT')}",
            lambda: f"CONVERT TO CHARACTER SET {charset} COLLATE {charset.strip(chr(39))}_bin",
            self.options, self.options, lambda: "FORCE",
            lambda: f"ADD CONSTRAINT {self.new()} CHECK (1 > 0)", lambda: "ADD CHECK (1)", lambda: "ALGORITHM=COPY, LOCK=SHARED",
            lambda: f"RENAME {self.one('TO', 'AS', '=', '')} {self.quoted(self.one('u', 'w'))}",
            lambda: "DISABLE KEYS",
        ]  # fmt: skip
        mysql: list[Callable[[], str]] = [
            # MariaDB 11.4 crashes on some of these.
            lambda: f"ADD CONSTRAINT f{self.rng.randrange(9)} FOREIGN KEY ({self.old()}) REFERENCES u (a)",
            lambda: f"ALTER INDEX {self.key_name()} {self.one('INVISIBLE', 'VISIBLE')}",
            lambda: f"ALTER COLUMN {self.old()} SET {self.one('INVISIBLE', 'VISIBLE')}",
            lambda: "ALTER CHECK t_chk_1 NOT ENFORCED", lambda: "DROP CHECK t_chk_1",
        ]  # fmt: skip
        maria: list[Callable[[], str]] = [
            lambda: f"ADD {a()}IF NOT EXISTS {self.column(self.new())}{self.place()}",
            lambda: f"ADD {a()}IF NOT EXISTS ({self.column(self.new())}, {self.column(self.new())})",
            lambda: f"DROP {a()}IF EXISTS {self.new()}", lambda: f"MODIFY {a()}IF EXISTS {self.column(self.new())}",
            lambda: f"CHANGE {a()}IF EXISTS {self.new()} {self.column(self.new())}",
            lambda: f"RENAME COLUMN IF EXISTS {self.new()} TO {self.new()}",
            lambda: f"ADD UNIQUE INDEX IF NOT EXISTS {self.one('k1', 'k9')} {self.key_parts()}",
            lambda: f"ADD CONSTRAINT IF NOT EXISTS {self.one('k1', 'k9')} UNIQUE {self.key_parts()}",
            lambda: f"DROP INDEX IF EXISTS {self.one('k1', 'k2')}", lambda: "DROP CONSTRAINT IF EXISTS k1",
            lambda: f"RENAME INDEX IF EXISTS {self.one('k1', 'k2')} TO k9", lambda: "ADD PRIMARY KEY IF NOT EXISTS (a)",
            lambda: f"ALTER INDEX {self.key_name()} NOT IGNORED", lambda: f"ALTER COLUMN IF EXISTS {self.old()} DROP DEFAULT",
            lambda: "ADD (p1 DATE, p2 DATE, PERIOD FOR pp (p1, p2))", lambda: "DROP PERIOD IF EXISTS FOR pp",
            lambda: "ADD SYSTEM VERSIONING", lambda: "DROP SYSTEM VERSIONING",
        ]  # fmt: skip
        own = maria if self.maria else mysql
        return str(self.rng.choice(both if self.rng.random() < 0.85 else own)())

    def modify(self, word: str) -> str:
        return f"MODIFY {word}{self.column(self.old())}{self.place()}"

    def alter(self) -> str:
        parts = [self.alter_part() for _ in range(self.one(1, 1, 1, 1, 2, 2, 3, 4))]
        if self.rng.random() < 0.1:  # columns that change names
            one, other = self.old(), self.old()
            parts[:1] = [f"RENAME COLUMN {one} TO {other}", f"RENAME COLUMN {other} TO {one}"]
        if self.rng.random() < 0.12:
            at = self.rng.randrange(len(parts))
            parts[at] = self.commented(parts[at])
        last = (
            f"PARTITION BY HASH ({self.old()}) PARTITIONS 2",
            "REMOVE PARTITIONING",
            "PARTITION BY KEY () PARTITIONS 3",
        )
        if self.rng.random() < 0.04:
            return str(
                self.one(
                    "ADD PARTITION PARTITIONS 1",
                    f"ORDER BY {self.old()}, {self.old()}",
                    "COALESCE PARTITION 1",
                    *last,
                )
            )
        if self.rng.random() < 0.04:
            parts.append(f"ORDER BY {self.old()}")
        return ", ".join(parts) + (" " + self.one(*last) if self.rng.random() < 0.06 else "")

    def commented(self, text: str) -> str:
        """Return a statement with comments of each kind around or beside it."""
        forms = [f"/*!50000 {text} */", f"/*! {text} */", f"{text} /* , ADD x INT */", f"{text} -- , ADD y INT\n", f"{text} # it's\n",
                 f"{text} /*!99999 , ADD z INT */", f"/*!40101 {text}*/"]  # fmt: skip
        forms += (
            [f"/*M! {text} */", f"/*M!100100 {text} */", f"{text} /*!80000 , ADD y INT */"]
            if self.maria
            else [f"/*!80000 {text} */", f"/*!080013 {text} */", f"{text} /*M! , ADD x INT */"]
        )
        return str(self.rng.choice(forms))

    # -- statements ------------------------------------------------------------------------------

    def body(self) -> str:
        names = self.rng.sample(_BARE, self.one(2, 3, 4)) + self.rng.sample(_QUOTED, self.one(0, 0, 1))
        names = [self.quoted(name) for name in names]
        parts = [self.column(name) for name in names]
        parts += [self.key(names) for _ in range(self.one(0, 0, 1, 1, 2))]
        if self.rng.random() < 0.1:
            parts.insert(self.rng.randrange(len(parts)), f"CHECK ({names[0]} <> 5 OR 1)")
        if self.maria and self.rng.random() < 0.05:
            parts += ["p1 DATETIME", "p2 DATETIME", "PERIOD FOR pp (p1, p2)"]
        if self.rng.random() < 0.1:
            parts[0] = self.commented(parts[0])
        return f"({', '.join(parts)})"

    def create(self, other: str) -> str:
        head = self.one(
            "CREATE TABLE",
            "CREATE TABLE",
            "CREATE TABLE IF NOT EXISTS",
            *(["CREATE OR REPLACE TABLE"] if self.maria else []),
        )
        options = self.one(
            "",
            "",
            f" {self.options()}",
            f" {self.options()} {self.options()}",
            f" {self.options()}, {self.options()}",
        )
        return f"{head} {other} {self.body()}{options}{self.some(0.05, ' PARTITION BY KEY () PARTITIONS 2')}"

    def select(self, other: str, table: str) -> str:
        extra = self.one(
            "",
            " (x INT)",
            f" ({self.column('nn')})",
            f" {self.options()}",
            f" (k INT NOT NULL, UNIQUE (k)) {self.options()}",
        )
        columns = self.one(
            "*", f"{self.old()}", "1 AS k, 'x' AS y, 1.5 z", f"{self.old()}, NOW(3) AS n, 2 AS x"
        )
        return f"CREATE TABLE {other}{extra} {self.one('', 'AS ', 'IGNORE ', 'REPLACE ')}SELECT {columns} FROM {table}"

    def statement(self) -> str:
        # MariaDB 11.4 leaves a table of such a name behind when ALTER copies and renames it.
        there = [table for db, table in self._tables() if db == self.db] or ["t"]
        self.table = self.rng.choice(there)
        table, other = (
            self.quoted(self.table),
            self.quoted(self.one("t", "u", "T_3" if self.maria else "T 3", "w")),
        )
        table = self.one(table, table, f"{self.db}.{table}", f"`{self.db}` . {table}")
        charset = self.rng.choice(CHARSETS)
        head = f"ALTER {'IGNORE ' if self.maria and self.rng.random() < 0.1 else ''}TABLE {table}"
        ways: list[Callable[[], str]] = [
            *[lambda: f"{head} {self.alter()}"] * 12,
            *[lambda: self.create(other)] * 2,
            lambda: f"CREATE TABLE IF NOT EXISTS {other} LIKE {table}", lambda: f"CREATE TABLE {other} (LIKE {table})",
            lambda: self.select(other, table),
            lambda: f"RENAME TABLE {table} TO v, {other} TO {table}, v TO {other}",
            lambda: f"ALTER TABLE {table} RENAME TO {other}", lambda: f"RENAME TABLES {table} TO {other}",
            lambda: f"CREATE {self.one('', 'UNIQUE')} INDEX {self.one('k5', 'k1', 'k1 USING BTREE')} ON {table} {self.key_parts()}",
            lambda: f"DROP INDEX {self.one(self.key_name(), '`PRIMARY`')} ON {table}",
            lambda: f"DROP TABLE IF EXISTS {other}",
            lambda: f"ALTER DATABASE {self.one('', self.db)} {self.one('DEFAULT ', '')}CHARACTER SET {charset}",
            lambda: f"ALTER SCHEMA {self.db} COLLATE {self.rng.choice(_COLLATIONS)}",
            lambda: f"TRUNCATE {table}", lambda: f"{head} EXCHANGE PARTITION p0 WITH TABLE {other}",
        ]  # fmt: skip
        if self.maria:
            ways += [
                lambda: f"CREATE OR REPLACE TABLE {other} LIKE {table}",
                lambda: f"CREATE OR REPLACE INDEX k1 ON {table} {self.key_parts()}",
                lambda: f"CREATE UNIQUE INDEX IF NOT EXISTS k1 ON {table} {self.key_parts()}",
                lambda: f"DROP INDEX IF EXISTS k1 ON {table}",
                lambda: f"ALTER TABLE IF EXISTS {other} WAIT 5 {self.alter()}",
                lambda: f"RENAME TABLE IF EXISTS {other} TO w",
                lambda: "CREATE OR REPLACE SEQUENCE sq", lambda: "DROP SEQUENCE IF EXISTS sq",
            ]  # fmt: skip
        return str(self.rng.choice(ways)())
