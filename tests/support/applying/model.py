"""A model of an upstream: tables over small domains with random valid changes, and their log."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from schemas.structure import TableStructure
from tests.support.epochs.fake_topic import Change, delete, insert, integer, text, update

Row = dict[str, Any]
#: equal under utf8mb4_general_ci: a A á; b, B and B with a space; s S ß
_TEXTS = ("a", "A", "á", "b", "B ", "B", "s", "ß", "ss", "it's", None)
_FOLDS = {"A": "a", "á": "a", "B ": "b", "B": "b", "ß": "s"}

TABLES = {
    "plain": "(id INT PRIMARY KEY, n INT, s VARCHAR(60))",
    "uniques": "(id INT PRIMARY KEY, n INT, s VARCHAR(60), UNIQUE KEY (n), UNIQUE KEY (s))",
    "prefixed": "(id INT PRIMARY KEY, n INT, s VARCHAR(60), UNIQUE KEY (s(1), n))",
    "computed": "(id INT PRIMARY KEY, n INT, s VARCHAR(60), g INT AS (n % 5) STORED, UNIQUE KEY (g))",
    "named": "(s VARCHAR(60) PRIMARY KEY, n INT)",
    "bag": "(n INT, s VARCHAR(60))",
    "parent": "(id INT PRIMARY KEY, n INT, s VARCHAR(60))",
    "child": "(id INT PRIMARY KEY, n INT, s VARCHAR(60), FOREIGN KEY (n) REFERENCES parent (id))",
    "head": "(id INT PRIMARY KEY, n INT, s VARCHAR(60))",
    "tail": "(id INT PRIMARY KEY, n INT, s VARCHAR(60), FOREIGN KEY (n) REFERENCES head (id) ON DELETE CASCADE)",
}


def fold(value: object) -> object:
    """Return the form in which equal texts are the same."""
    return _FOLDS.get(value, value) if isinstance(value, str) else value


def first(value: object) -> object:
    """Return the prefix of one character."""
    return fold(value[0]) if isinstance(value, str) else value


@dataclass
class Model:
    """The upstream's state, and the changes since the last call that returned them."""

    db: str
    random: Random
    tables: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in TABLES})
    changes: list[Change] = field(default_factory=list)

    def structure(self, table: str) -> TableStructure:
        """The table's structure in the log, including the generated column."""
        number, word = integer("n", nullable=True), text("s", nullable=True)
        if table == "named":
            return TableStructure(self.db, table, (text("s"), number), ("s",))
        if table == "bag":
            return TableStructure(self.db, table, (number, word))
        more = (integer("g", nullable=True),) if table == "computed" else ()
        return TableStructure(self.db, table, (integer("id"), number, word, *more), ("id",))

    def run(self, statements: int) -> list[Change]:
        """Run random statements and return their changes; impossible statements do nothing."""
        self.changes = []
        for _ in range(statements):
            self._statement(self.random.choice(tuple(TABLES)), self.random.choice("iiuuud"))
        return self.changes

    def _statement(self, table: str, kind: str) -> None:
        rows = self.tables[table]
        if kind == "i" or not rows:
            self._write(table, None, self._row(table))
        elif kind == "d":
            self._remove(table, self.random.choice(rows))
        else:
            old = self.random.choice(rows)
            new = self._row(table)
            for name in old:
                if self.random.random() < 0.5:
                    new[name] = old[name]
            self._write(table, old, new)

    def _row(self, table: str) -> Row:
        word = self.random.choice(_TEXTS)
        row: Row = {"n": self.random.choice((*range(8), None)), "s": word}
        if table == "named":
            row["s"] = word or "x"
        elif table != "bag":
            row["id"] = self.random.randrange(12)
        if table == "computed":
            row["g"] = None
        return row

    def _write(self, table: str, old: Row | None, new: Row) -> None:
        if table == "computed":
            new["g"] = None if new["n"] is None else new["n"] % 5
        others = [row for row in self.tables[table] if row is not old]
        if new == old or not self._may_be(table, new, others):
            return
        if (
            old is not None
            and table in ("parent", "head")
            and old["id"] != new["id"]
            and self._children(table, old)
        ):
            return
        structure = self.structure(table)
        made = insert(structure, dict(new)) if old is None else update(structure, dict(old), dict(new))
        self.changes.append(made)
        self.tables[table] = [*others, new]

    def _remove(self, table: str, row: Row) -> None:
        children = self._children(table, row)
        if table == "parent" and children:
            return
        self.changes.append(delete(self.structure(table), dict(row)))
        self.tables[table] = [other for other in self.tables[table] if other is not row]
        if table == "head":
            # The server's cascade, which is not in the log.
            self.tables["tail"] = [other for other in self.tables["tail"] if other not in children]

    def _children(self, table: str, row: Row) -> list[Row]:
        of = {"parent": "child", "head": "tail"}.get(table)
        return [child for child in self.tables[of] if child["n"] == row["id"]] if of else []

    def _may_be(self, table: str, new: Row, others: list[Row]) -> bool:
        keys: dict[str, list[Any]] = {
            "uniques": [lambda r: (r["n"],), lambda r: (fold(r["s"]),)],
            "prefixed": [lambda r: (first(r["s"]), r["n"])],
            "computed": [lambda r: (r["g"],)],
            "named": [lambda r: (fold(r["s"]),)],
        }
        wanted = list(keys.get(table, []))
        if "id" in new:
            wanted.append(lambda r: (r["id"],))
        for key in wanted:
            if None not in key(new) and any(key(row) == key(new) for row in others):
                return False
        above = {"child": "parent", "tail": "head"}.get(table)
        if above is None or new["n"] is None:
            return True
        return any(row["id"] == new["n"] for row in self.tables[above])
