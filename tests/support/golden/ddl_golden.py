"""Reads the golden statements of ``golden/ddl``, and renews them in the same form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from schemas.ddl.classify import classify
from schemas.ddl.cursor import TableName
from schemas.ddl.kinds import ClassifiedStatement
from schemas.ddl.lexer import ANSI_QUOTES, FLAVORS, NO_BACKSLASH_ESCAPES, Flavor
from schemas.quote import quoted
from tests.support.paths import GOLDEN

FOLDER = GOLDEN / "ddl"
DEFAULT_DB = "app"


@dataclass(frozen=True)
class Case:
    """A statement, a flavor, and the expected result."""

    place: str
    flavor: Flavor
    statement: str
    expected: str
    given: tuple[str, ...]
    options: frozenset[str]

    @property
    def sql_mode(self) -> int:
        ansi = ANSI_QUOTES if "ansi" in self.options else 0
        return ansi | (NO_BACKSLASH_ESCAPES if "no-backslash" in self.options else 0)

    @property
    def default_db(self) -> str:
        return "" if "no-db" in self.options else DEFAULT_DB

    def classify(self) -> ClassifiedStatement:
        return classify(self.statement, self.default_db, self.flavor, sql_mode=self.sql_mode)


def files() -> list[Path]:
    """Return the files with cases."""
    return sorted(path for path in FOLDER.glob("*.txt") if path.name != "README.txt")


def cases() -> list[Case]:
    """Return all cases, one for each flavor."""
    return [case for path in files() for case in _file(path)]


def renewed(path: Path) -> str:
    """Return a file's text with the code's present results.

    Raises:
        ValueError: the flavors of one case differ.
    """
    head, *blocks = path.read_text().split("\n=== ")
    return "\n=== ".join([head, *map(_renewed, blocks)]).rstrip("\n") + "\n"


def _renewed(block: str) -> str:
    both = _case("", block)
    results = {render(case.classify()) for case in both}
    if len(results) != 1:
        raise ValueError(f"not the same in both flavors: {block}")
    statement, mark, result = block.partition("\n--- ")
    if not mark:
        statement, result = statement.rstrip("\n"), "\n\n"
    return f"{statement}\n--- {results.pop()}{result.removeprefix(both[0].expected)}"


def _file(path: Path) -> list[Case]:
    found = []
    line = 1
    for block in path.read_text().split("\n=== "):
        if line > 1:
            found += _case(f"{path.name}:{line}", block)
        line += block.count("\n") + 1
    return found


def _case(place: str, block: str) -> list[Case]:
    header, _, body = block.partition("\n")
    flavor, *options = header.split()
    statement, _, result = body.partition("\n--- ")
    given = []
    while statement.startswith("given: "):
        line, _, statement = statement.partition("\n")
        given += line.removeprefix("given: ").split("; ")
    flavors = [f for f in FLAVORS if flavor in (f, "both")]
    assert flavors, f"{place}: {flavor!r} is no flavor"
    lines = [line for line in result.split("\n") if line and not line.startswith("#")]
    expected = "\n".join(lines)
    return [Case(place, f, statement, expected, tuple(given), frozenset(options)) for f in flavors]


def render(statement: ClassifiedStatement) -> str:
    """Return a classified statement in the form of the golden files."""
    flags = {
        "temporary": statement.temporary,
        "select": statement.creates_with_select,
        "start-transaction": statement.start_transaction,
        "one-phase": statement.one_phase,
    }
    first = [statement.category.name, statement.kind, *(name for name, on in flags.items() if on)]
    lines = [" ".join(filter(None, first)), *(_table(t) for t in statement.tables)]
    if statement.database is not None:
        lines.append(f"database {quoted(statement.database)}")
    if statement.program is not None:
        lines.append("program " + quoted(*statement.program))
    if statement.xid is not None:
        lines.append(f"xid: {statement.xid}")
    return "\n".join(lines)


def _table(name: TableName) -> str:
    text = quoted(name.db, name.table)
    if name.renamed_to_db is None or name.renamed_to is None:
        return text
    return f"{text} -> {quoted(name.renamed_to_db, name.renamed_to)}"
