"""Makes ALTER TABLEs of all clauses in both servers' grammars, with the tables that they concern."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hypothesis import strategies as st

from schemas.ddl.cursor import TableName
from schemas.ddl.lexer import FLAVORS, Flavor

_NAMES = ("u", "`a ``b`", "größe", "`RENAME`", "app2.t", "d.`x,y`", "d.rename", ".u", "`d`.`(`")
_TEXTS = ("''", "', RENAME TO x'", "'it''s ( \\' x'", '"),"')

# Clauses that need commas between them. {n} is a column or key, {s} a string, {t} another table.
_BOTH = (
    "ADD {n} INT",
    "ADD COLUMN {n} DECIMAL(9, 2) NOT NULL DEFAULT 1 COMMENT {s} AFTER {n}",
    "ADD ({n} INT, KEY {n} ({n}), CHECK (a > (1, 2)))",
    "ADD {n} ENUM({s}, {s}) CHARACTER SET utf8mb4 FIRST",
    "ADD {n} INT GENERATED ALWAYS AS (a + (b)) VIRTUAL",
    "ADD INDEX {n} USING BTREE ({n}(4) DESC, {n}) COMMENT {s}",
    "ADD UNIQUE KEY ({n})",
    "ADD FULLTEXT INDEX {n} ({n}) WITH PARSER ngram",
    "ADD SPATIAL KEY ({n})",
    "ADD CONSTRAINT {n} PRIMARY KEY ({n}, {n})",
    "ADD CONSTRAINT {n} FOREIGN KEY ({n}) REFERENCES {t} ({n}) ON DELETE SET NULL ON UPDATE CASCADE",
    "ADD CONSTRAINT {n} CHECK (a <> {s})",
    "MODIFY {n} VARCHAR(20) COLLATE utf8mb4_bin",
    "MODIFY COLUMN {n} INT UNSIGNED FIRST",
    "CHANGE {n} {n} TIMESTAMP DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
    "CHANGE COLUMN {n} {n} SET({s}) AFTER {n}",
    "ALTER {n} SET DEFAULT {s}",
    "ALTER COLUMN {n} SET DEFAULT (a + 1)",
    "ALTER {n} DROP DEFAULT",
    "DROP {n}",
    "DROP COLUMN {n}",
    "DROP INDEX {n}",
    "DROP KEY {n}",
    "DROP PRIMARY KEY",
    "DROP FOREIGN KEY {n}",
    "DROP CONSTRAINT {n}",
    "RENAME COLUMN {n} TO {n}",
    "RENAME INDEX {n} TO {n}",
    "RENAME KEY {n} TO {n}",
    "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "DEFAULT CHARACTER SET = latin1",
    "CHARSET utf8mb4",
    "DISABLE KEYS",
    "ENABLE KEYS",
    "FORCE",
    "ALGORITHM = INPLACE",
    "LOCK NONE",
    "ENGINE = InnoDB COMMENT = {s} ROW_FORMAT DYNAMIC",
    "AUTO_INCREMENT = 5",
    "UNION = (a, b)",
    "DATA DIRECTORY = {s} INDEX DIRECTORY = {s}",
    "STATS_PERSISTENT = DEFAULT MAX_ROWS 5",
)
_OWN: dict[Flavor, tuple[str, ...]] = {
    "mysql": (
        "ADD CHECK (a > 1) NOT ENFORCED",
        "ADD {n} INT INVISIBLE COLUMN_FORMAT FIXED STORAGE DISK",
        "ADD {n} POINT NOT NULL SRID 4326",
        "ADD KEY {n} ((CAST(a AS CHAR(10) ARRAY)))",
        "ALTER CHECK {n} NOT ENFORCED",
        "ALTER CONSTRAINT {n} ENFORCED",
        "ALTER COLUMN {n} SET INVISIBLE",
        "ALTER INDEX {n} VISIBLE",
        "DROP CHECK {n}",
        "WITH VALIDATION",
        "WITHOUT VALIDATION",
        "SECONDARY_LOAD",
        "SECONDARY_UNLOAD",
        "TABLESPACE ts STORAGE DISK",
        "ENGINE_ATTRIBUTE = {s}",
        "AUTOEXTEND_SIZE = 4M",
    ),
    "mariadb": (
        "ADD COLUMN IF NOT EXISTS {n} INT",
        "ADD IF NOT EXISTS ({n} INT, {n} INT)",
        "ADD {n} TEXT COMPRESSED = zlib",
        "ADD {n} INT CHECK (a > 1) REFERENCES {t} ({n})",
        "ADD {n} INT WITHOUT SYSTEM VERSIONING",
        "ADD {n} BIGINT DEFAULT NEXT VALUE FOR s",
        "ADD INDEX IF NOT EXISTS {n} ({n}) IGNORED",
        "ADD VECTOR INDEX {n} ({n}) DISTANCE = euclidean M = 6",
        "ADD CONSTRAINT IF NOT EXISTS {n} CHECK (a > 1)",
        "ADD FOREIGN KEY IF NOT EXISTS {n} ({n}) REFERENCES {t} ({n})",
        "ADD UNIQUE (a, p WITHOUT OVERLAPS)",
        "ADD PERIOD FOR p (a, b)",
        "ADD SYSTEM VERSIONING",
        "MODIFY COLUMN IF EXISTS {n} INT",
        "CHANGE IF EXISTS {n} {n} INT",
        "ALTER COLUMN IF EXISTS {n} DROP DEFAULT",
        "ALTER INDEX {n} NOT IGNORED",
        "DROP COLUMN IF EXISTS {n} RESTRICT",
        "DROP INDEX IF EXISTS {n}",
        "DROP FOREIGN KEY IF EXISTS {n}",
        "DROP CONSTRAINT IF EXISTS {n}",
        "DROP PERIOD FOR p",
        "DROP SYSTEM VERSIONING",
        "RENAME COLUMN IF EXISTS {n} TO {n}",
        "RENAME INDEX IF EXISTS {n} TO {n}",
        "WITH SYSTEM VERSIONING",
        "PAGE_COMPRESSED = 1 `PAGE_COMPRESSION_LEVEL` = 3",
        "`engine ``option` = {s}",
        "ENCRYPTED = YES ENCRYPTION_KEY_ID = 1",
    ),
}
# The last clause; it may follow others without a comma.
_LAST = (
    "PARTITION BY KEY ({n}) PARTITIONS 4",
    "PARTITION BY HASH (a + (b)) (PARTITION p0 ENGINE = InnoDB, PARTITION p1 COMMENT = {s})",
    "PARTITION BY RANGE COLUMNS ({n}) (PARTITION p0 VALUES LESS THAN ({s}), PARTITION p1 VALUES LESS THAN (MAXVALUE))",
    "REMOVE PARTITIONING",
)
# Each of these is a statement's only clause.
_ALONE = (
    "ORDER BY {n} DESC, {n}",
    "ADD PARTITION (PARTITION p1 VALUES IN (1, 2))",
    "ADD PARTITION PARTITIONS 2",
    "DROP PARTITION p0, import",
    "TRUNCATE PARTITION p0, p1",
    "TRUNCATE PARTITION ALL",
    "COALESCE PARTITION 2",
    "REORGANIZE PARTITION p0, p1 INTO (PARTITION p2 VALUES LESS THAN (5), PARTITION p3 VALUES LESS THAN MAXVALUE)",
    *(f"{verb} PARTITION ALL" for verb in ("ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR")),
)
_WITH_TABLE: dict[Flavor, tuple[str, ...]] = {
    "mysql": (
        "EXCHANGE PARTITION p0 WITH TABLE {t}",
        "EXCHANGE PARTITION p0 WITH TABLE {t} WITHOUT VALIDATION",
    ),
    "mariadb": (
        "EXCHANGE PARTITION p0 WITH TABLE {t}",
        "CONVERT PARTITION p0 TO TABLE {t}",
        "CONVERT TABLE {t} TO PARTITION p0 VALUES LESS THAN (5) WITH VALIDATION",
    ),
}
_FILES = (
    "DISCARD TABLESPACE",
    "IMPORT TABLESPACE",
    "DISCARD PARTITION p0, p1 TABLESPACE",
    "IMPORT PARTITION ALL TABLESPACE",
)
_COLUMNS = ("a", "`b`", "comment", "`rename`", "`x,y`", "`(`", "import", "1st", "`partition`")
_PARTS = re.compile(r"""'(?:[^'\\]|''|\\.)*'|"[^"]*"|`(?:[^`]|``)*`|[^\s'"`]+""")
_SPACES = (" ", "\n\t", " /* RENAME TO x, */ ", " -- (\n", "/**/ ", " # it's\n")
_OLD_COMMENT = "/*!50100 "  # both servers execute it
_FOREIGN_COMMENT: dict[Flavor, str] = {
    "mysql": "/*!110400 RENAME TO x */",
    "mariadb": "/*!80100 RENAME TO x */",
}


@dataclass(frozen=True)
class Alter:
    """An ALTER TABLE.

    Attributes:
        tables: as ``classify`` is to find them in a session with the database ``app``.
        files: whether it imports or discards a table's files.
    """

    statement: str
    flavor: Flavor
    tables: tuple[TableName, ...]
    files: bool = False


def _name(text: str) -> tuple[str, str]:
    """Return database and table of one of ``_NAMES``."""
    parts = [part.strip("`").replace("``", "`") for part in text.split(".")]
    return (parts[0] or "app", parts[1]) if len(parts) == 2 else ("app", parts[0])


@st.composite
def alters(draw: st.DrawFn) -> Alter:
    """Return a strategy for valid ALTER TABLEs in random spelling."""
    flavor = draw(st.sampled_from(FLAVORS))
    table, other = draw(st.sampled_from(_NAMES)), draw(st.sampled_from(_NAMES))
    clauses, tables, files = draw(_clauses(flavor, table, other))
    modifiers = exists = behind = ""
    if flavor == "mariadb":
        modifiers = draw(st.sampled_from(("", "ONLINE", "IGNORE", "ONLINE IGNORE")))
        exists = draw(st.sampled_from(("", "IF EXISTS")))
        behind = draw(st.sampled_from(("", "WAIT 5", "NOWAIT")))
    text = f"ALTER {modifiers} TABLE {exists} {table} {behind} {clauses}{draw(st.sampled_from(('', ' ;')))}"
    return Alter(draw(_spelled(text, flavor)), flavor, tables, files)


@st.composite
def _clauses(
    draw: st.DrawFn, flavor: Flavor, table: str, other: str
) -> tuple[str, tuple[TableName, ...], bool]:
    """Return the text of some clauses, and what they make of the table."""

    def filled(clause: str) -> str:
        parts = re.split(r"(\{[nst]\})", clause)
        choices = {"{n}": st.sampled_from(_COLUMNS), "{s}": st.sampled_from(_TEXTS), "{t}": st.just(other)}
        return "".join(draw(choices[part]) if part in choices else part for part in parts)

    own = TableName(*_name(table))
    kind = draw(st.sampled_from(("listed", "listed", "listed", "alone", "partner", "files")))
    if kind == "files":
        return draw(st.sampled_from(_FILES)), (own,), True
    if kind == "alone":
        return filled(draw(st.sampled_from(_ALONE))), (own,), False
    if kind == "partner":
        return filled(draw(st.sampled_from(_WITH_TABLE[flavor]))), (own, TableName(*_name(other))), False
    listed = [filled(clause) for clause in draw(st.lists(st.sampled_from(_BOTH + _OWN[flavor]), max_size=4))]
    if draw(st.booleans()):
        own = own._replace(renamed_to_db=_name(other)[0], renamed_to=_name(other)[1])
        new = f"RENAME {draw(st.sampled_from(('', 'TO', 'AS', '=')))} {other}"
        listed.insert(draw(st.integers(0, len(listed))), new)
    last = filled(draw(st.sampled_from(("", *_LAST))))
    return f"{', '.join(listed)} {last}", (own,), False


@st.composite
def _spelled(draw: st.DrawFn, text: str, flavor: Flavor) -> str:
    """Return a statement with other spaces, comments, executable comments and letters."""
    parts = [
        part if part[0] in "'\"`" or not draw(st.booleans()) else part.lower()
        for part in _PARTS.findall(text)
    ]
    if draw(st.booleans()):
        begin = draw(st.integers(0, len(parts) - 1))
        end = draw(st.integers(begin, len(parts) - 1))
        parts[begin] = _OLD_COMMENT + parts[begin]
        parts[end] += " */"
    elif draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), _FOREIGN_COMMENT[flavor])
    return "".join(part + draw(st.sampled_from(_SPACES)) for part in parts)
