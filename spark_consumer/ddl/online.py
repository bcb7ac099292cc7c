"""Online schema changes: what gh-ost and pt-online-schema-change do becomes the ALTERs of the real table, once.

The tools make a shadow table like the real one, alter it while it is empty, fill it, and swap the names. A shadow
table is hidden from the channel: its rows and DDL are not applied, its ALTERs are kept (``online_tables``), and
run on the real table where the upstream swaps. A table is hidden only where that is sure to give the same rows and
the same structure; in any doubt it is replicated as the table that it is, and so is the swap, which is as right:

- its CREATE was seen, and made it as the real table is on the downstream, which has no foreign keys;
- its ALTERs give rows the same values there as they got from the tool (``shadow_tables.reproducible``).

The rules are functions over values: the same DDL at the same position always gives the same statements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import structlog

from schemas.ddl.classify import classify
from schemas.ddl.lexer import Flavor
from schemas.ddl.names import Unroutable, rename
from schemas.errors import DownstreamError
from schemas.quote import quoted
from schemas.tables import QualifiedName
from schemas.wire.epoch import SchemaChanged, TableChanged
from spark_consumer.ddl.edit import Uneditable, narrowed
from spark_consumer.ddl.online_tables import Hidden, OnlineTables
from spark_consumer.ddl.shadow_tables import body, liked, made_by_ghost, replaces, reproducible
from spark_consumer.plan.refusal import DdlRefused
from spark_consumer.rules.ddl_options import DdlOptions

#: the downstream's SHOW CREATE TABLE of an upstream's table, None if it is not there
Defined = Callable[[str, str], str | None]
_log = structlog.get_logger()


@dataclass
class OnlineResult:
    """What a DDL became: the statements to carry, and what is hidden behind it."""

    tables: OnlineTables
    statements: list[SchemaChanged] = field(default_factory=list)


def translate_online(
    tables: OnlineTables, ddl: SchemaChanged, options: DdlOptions, defined: Defined
) -> OnlineResult:
    """Take a DDL in, under the upstream's names.

    Args:
        defined: asked only about tables that an online schema change may be about.

    Raises:
        DownstreamError: TR626, a hidden table becomes something else than the real one; TR627, its rows cannot be
            had by ALTERs of the real table, and it is too late to replicate it as a table.
    """
    if not tables.tables and not (options.online_ddl and ddl.kind in ("CREATE TABLE", "RENAME TABLE")):
        return OnlineResult(tables, [ddl])
    step = _Step(tables, ddl, options, defined)
    handler = {
        "CREATE TABLE": step.create,
        "DROP TABLE": step.drop,
        "RENAME TABLE": step.rename,
        "DROP DATABASE": step.drop_database,
    }.get(ddl.kind, step.change)
    try:
        handler()
    except (Uneditable, Unroutable) as error:
        raise DdlRefused(
            "TR626",
            f"an online schema change cannot be followed: {error}: {ddl.statement[:200]}",
            hint="do by hand on the downstream what the statement does there, and ignore it with a filter rule that"
            " has its text as sql-pattern",
        ) from error
    return step.taken


class _Step:
    """One DDL on its way through."""

    def __init__(
        self, tables: OnlineTables, ddl: SchemaChanged, options: DdlOptions, defined: Defined
    ) -> None:
        self.taken = OnlineResult(tables)
        self._ddl, self._options, self._defined = ddl, options, defined
        self._flavor, self._mode = cast(Flavor, ddl.source_flavor), ddl.sql_mode or 0

    def _run(self, *statements: SchemaChanged) -> None:
        self.taken.statements += statements

    def _hide(self, hidden: Hidden) -> None:
        self.taken.tables = self.taken.tables.having(hidden)

    def _forget(self, *names: QualifiedName) -> None:
        self.taken.tables = self.taken.tables.without(*names)

    # -- CREATE ----------------------------------------------------------------------------------

    def create(self) -> None:
        db, table = self._ddl.tables[0].db, self._ddl.tables[0].table
        there = self.taken.tables.get(db, table)
        if there is not None and not replaces(self._ddl.statement, self._flavor, sql_mode=self._mode):
            return  # IF NOT EXISTS
        if there is not None:
            self._forget(there.name)
        for waiting in self.taken.tables.shadows_of(db, table):
            self._drop_for_good(waiting)
        hidden = self._recognised(db, table)
        if hidden is None:
            self._run(self._ddl)
            return
        _log.info("online_ddl_begins", table=f"{db}.{hidden.real}", hidden=table, shadow=hidden.shadow)
        self._hide(hidden)

    def _recognised(self, db: str, table: str) -> Hidden | None:
        options = self._options
        if not options.online_ddl:
            return None
        real = options.shadow_of(table)
        if real is not None and self._is_like(db, real):
            return Hidden(db, table, real, True, (self._ddl,))
        real = options.trash_of(table)
        if real is None or self._defined(db, real) is None:
            return None
        if not made_by_ghost(self._ddl.statement, self._flavor, sql_mode=self._mode):
            return None
        return Hidden(db, table, real, False)

    def _is_like(self, db: str, real: str) -> bool:
        """Whether the table is made exactly as the real one is on the downstream."""
        if self.taken.tables.get(db, real) is not None:
            return False
        shown = self._defined(db, real)
        if shown is None or "FOREIGN KEY" in shown.upper():
            return False
        text = self._ddl.statement
        source = liked(text, self._ddl.default_db, self._flavor, sql_mode=self._mode)
        if source is not None:
            return source == (db, real)
        return body(text, self._flavor, sql_mode=self._mode) == body(shown, self._flavor)

    # -- ALTER and what else changes one table ---------------------------------------------------

    def change(self) -> None:
        """ALTER TABLE, indexes, TRUNCATE, and all that is not about tables."""
        hidden = [self.taken.tables.get(table.db, table.table) for table in self._ddl.tables]
        found = [one for one in hidden if one is not None]
        if not found or "VIEW" in self._ddl.kind or "SEQUENCE" in self._ddl.kind:
            self._run(self._ddl)
            self._follow()
            return
        if len(self._ddl.tables) > 1 or self._ddl.tables[0].renamed_to is not None:
            raise self._lost(found[0], "it is exchanged or renamed by ALTER TABLE")
        if found[0].shadow and self._ddl.kind != "TRUNCATE TABLE":
            self._record(found[0])

    def _follow(self) -> None:
        """ALTER TABLE … RENAME may move a real table."""
        for table in self._ddl.tables:
            if table.renamed_to is not None:
                self._moved((table.db, table.table), (table.renamed_to_db or table.db, table.renamed_to))

    def _record(self, hidden: Hidden) -> None:
        statements = (*hidden.statements, self._ddl)
        if reproducible(statements[1:]):
            self._hide(replace(hidden, statements=statements))
        elif hidden.rows:
            raise DdlRefused(
                "TR627",
                f"an online schema change of {hidden.db}.{hidden.real} fills {hidden.table} with values that an ALTER"
                f" of the real table does not give: {self._ddl.statement[:200]}",
                hint=f"create {hidden.db}.{hidden.table} on the downstream with the upstream's rows, set"
                " online_tables = NULL for the channel in tailrace.relay_log_info, and start again with"
                " [ddl] online-ddl = false",
            )
        else:
            _log.info("online_ddl_replicated_as_table", table=f"{hidden.db}.{hidden.table}")
            self._forget(hidden.name)
            self._run(*statements)

    # -- DROP ------------------------------------------------------------------------------------

    def drop(self) -> None:
        kept = []
        for index, table in enumerate(self._ddl.tables):
            hidden = self.taken.tables.get(table.db, table.table)
            if hidden is not None:
                self._forget(hidden.name)
                if hidden.dropped:
                    self._drop_for_good(hidden)
            elif not self._postponed(table.db, table.table):
                kept.append(index)
        if kept:
            self._run(self._part(kept))

    def _postponed(self, db: str, table: str) -> bool:
        """The real table is dropped before the shadow table takes its name (pt-osc: drop_swap)."""
        open_ones = [h for h in self.taken.tables.shadows_of(db, table) if h.moved is None and not h.dropped]
        if not open_ones:
            return False
        self._hide(replace(open_ones[-1], dropped=True))
        return True

    def _drop_for_good(self, hidden: Hidden) -> None:
        """The shadow table did not take the name of the dropped real one after all."""
        if not hidden.dropped:
            return
        if self.taken.tables.get(*hidden.name) is not None:
            self._hide(replace(hidden, dropped=False))
        text = f"DROP TABLE IF EXISTS {quoted(hidden.db, hidden.real)}"
        self._run(self._made(text, "DROP TABLE", TableChanged(hidden.db, hidden.real)))

    def drop_database(self) -> None:
        self._run(self._ddl)
        gone = self._ddl_database()
        self._forget(*(h.name for h in self.taken.tables.tables if h.db == gone))

    def _ddl_database(self) -> str:
        found = classify(self._ddl.statement, self._ddl.default_db, self._flavor, sql_mode=self._mode)
        return found.database or self._ddl.default_db

    # -- RENAME ----------------------------------------------------------------------------------

    def rename(self) -> None:
        """Pair by pair: names that only the upstream has change here, the others there."""
        kept: list[int] = []
        pairs = [((t.db, t.table), (t.renamed_to_db or t.db, t.renamed_to or "")) for t in self._ddl.tables]
        alters: list[SchemaChanged] = []
        for index, (old, new) in enumerate(pairs):
            hidden = self.taken.tables.get(*old)
            if hidden is None:
                self._refuse_unseen(old, new, pairs)
                kept.append(index)
                self._moved(old, new)
            elif hidden.shadow and new == (hidden.db, hidden.real):
                alters += self._swap(hidden, pairs, kept)
            else:
                self._rename_hidden(hidden, new)
        if kept:
            self._run(self._part(kept))
        self._run(*alters)

    def _refuse_unseen(
        self, old: QualifiedName, new: QualifiedName, pairs: Sequence[tuple[QualifiedName, QualifiedName]]
    ) -> None:
        """A swap with a shadow table that the downstream never got.

        Where the real table's other name is there, it got it, and a crash behind the RENAME brought us back here.
        """
        real = self._options.shadow_of(old[1]) if self._options.online_ddl else None
        if real is None or new != (old[0], real) or self._defined(*old) is not None:
            return
        away = [target for source, target in pairs if source == new]
        if not away or self._defined(*away[-1]) is not None:
            return
        raise DdlRefused(
            "TR626",
            f"an online schema change ends that began before this channel saw it: {'.'.join(old)} becomes"
            f" {'.'.join(new)}, and its ALTERs are not known: {self._ddl.statement[:200]}",
            hint=f"alter {'.'.join(new)} on the downstream as the upstream's is now, ignore the statement with a filter"
            " rule that has its text as sql-pattern, and start again",
        )

    def _moved(self, old: QualifiedName, new: QualifiedName) -> None:
        """A real table that a tool works on may have got another name."""
        for hidden in self.taken.tables.tables:
            if hidden.shadow and old == (hidden.db, hidden.moved or hidden.real):
                if new[0] != hidden.db:
                    raise self._lost(hidden, "its real table went to another database")
                self._hide(replace(hidden, moved=None if new[1] == hidden.real else new[1]))

    def _swap(
        self, hidden: Hidden, pairs: Sequence[tuple[QualifiedName, QualifiedName]], kept: list[int]
    ) -> list[SchemaChanged]:
        """The shadow table takes the real one's name: the real one stays, and is altered."""
        real = (hidden.db, hidden.real)
        current = self.taken.tables.get(*hidden.name) or hidden
        self._forget(hidden.name)
        if current.moved is None and not current.dropped:
            raise self._lost(hidden, "the real table is still there")
        if current.moved is not None:
            away = (hidden.db, current.moved)
            now = [index for index in kept if pairs[index] == (real, away)]
            if now:
                kept.remove(now[-1])
            else:
                self._run(self._back(away, real))
            self._hide(Hidden(*away, hidden.real, False))
        _log.info("online_ddl_ends", table=".".join(real), alters=len(hidden.alters))
        return [self._of_real(alter, hidden) for alter in hidden.alters]

    def _back(self, away: QualifiedName, real: QualifiedName) -> SchemaChanged:
        names = f"{quoted(*away)} TO {quoted(*real)}"
        return self._made(f"RENAME TABLE {names}", "RENAME TABLE", TableChanged(*away, *real))

    def _of_real(self, alter: SchemaChanged, hidden: Hidden) -> SchemaChanged:
        """An ALTER of the shadow table as one of the real table."""

        def name(db: str, table: str | None) -> tuple[str, str | None]:
            return (db, hidden.real) if (db, table) == hidden.name else (db, table)

        flavor = cast(Flavor, alter.source_flavor)
        made = rename(alter.statement, alter.default_db, flavor, name, sql_mode=alter.sql_mode or 0)
        tables = (TableChanged(hidden.db, hidden.real),)
        return replace(alter, statement=made.statement, default_db=made.default_db, tables=tables)

    def _rename_hidden(self, hidden: Hidden, new: QualifiedName) -> None:
        options = self._options
        if new[0] != hidden.db or hidden.real not in (options.shadow_of(new[1]), options.trash_of(new[1])):
            raise self._lost(hidden, f"it becomes {'.'.join(new)}")
        self._forget(hidden.name)
        self._hide(replace(hidden, table=new[1]))

    # -- texts -----------------------------------------------------------------------------------

    def _part(self, kept: Sequence[int]) -> SchemaChanged:
        if len(kept) == len(self._ddl.tables):
            return self._ddl
        text = narrowed(self._ddl.statement, self._ddl.default_db, self._flavor, kept, sql_mode=self._mode)
        return replace(self._ddl, statement=text, tables=tuple(self._ddl.tables[index] for index in kept))

    def _made(self, text: str, kind: str, table: TableChanged) -> SchemaChanged:
        return replace(self._ddl, statement=text, kind=kind, tables=(table,))

    def _lost(self, hidden: Hidden, why: str) -> DownstreamError:
        return DdlRefused(
            "TR626",
            f"{hidden.db}.{hidden.table}, a table of an online schema change, is not on the downstream, and {why}:"
            f" {self._ddl.statement[:200]}",
            hint="create it on the downstream with the upstream's rows, set online_tables = NULL for the channel in"
            " tailrace.relay_log_info, and start again with [ddl] online-ddl = false",
        )
