"""Online schema changes: the work of gh-ost and pt-online-schema-change becomes ALTERs of the real table.

The tools create a shadow table like the real one, alter it while it is empty, fill it, and swap the names. The channel
hides the shadow table: it does not apply its rows and DDL, keeps its ALTERs (``online_tables``), and runs them on the
real table when the upstream swaps the names. It hides a table only if the result is sure to be the same:

- The channel has seen the CREATE, and it makes the same table as the downstream's real one, without foreign keys.
- The ALTERs give the real table's rows the same values as the tool's copy (``shadow_tables.is_reproducible``).

Otherwise the table and the swap are replicated like any others, which is correct too.

The rules are pure functions: the same DDL at the same position always gives the same statements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from schemas.ddl.classify import classify
from schemas.ddl.names import CannotRename, rename
from schemas.errors import DownstreamError
from schemas.quote import quoted
from schemas.tables import QualifiedName
from schemas.wire.epoch import SchemaChanged, TableChanged
from spark_consumer.ddl.edit import NotEditable, keep_items
from spark_consumer.ddl.online_tables import HiddenTable, OnlineTables
from spark_consumer.ddl.shadow_tables import body, is_reproducible, like_source, made_by_ghost, replaces
from spark_consumer.plan.refusal import DdlRefused
from spark_consumer.rules.ddl_options import DdlOptions

#: returns the downstream's SHOW CREATE TABLE of an upstream table; None if it does not exist
Defined = Callable[[str, str], str | None]
_log = structlog.get_logger()


@dataclass
class OnlineResult:
    """The translation of a DDL: the statements to apply, and the hidden tables after it."""

    tables: OnlineTables
    statements: list[SchemaChanged] = field(default_factory=list)


def translate_online(
    tables: OnlineTables, ddl: SchemaChanged, options: DdlOptions, defined: Defined
) -> OnlineResult:
    """Translate a DDL, under the upstream's names.

    Args:
        tables: the hidden tables before it.
        defined: called only for tables that an online schema change may concern.

    Raises:
        DownstreamError: TR626, a hidden table becomes something other than the real one; TR627, ALTERs of the real
            table do not give its rows, and it already has rows, so it can no longer be replicated as a table.
    """
    if not tables.tables and not (options.online_ddl and ddl.kind in ("CREATE TABLE", "RENAME TABLE")):
        return OnlineResult(tables, [ddl])
    work = _OnlineDdl(tables, ddl, options, defined)
    handler = {
        "CREATE TABLE": work.create,
        "DROP TABLE": work.drop,
        "RENAME TABLE": work.rename,
        "DROP DATABASE": work.drop_database,
    }.get(ddl.kind, work.change)
    try:
        handler()
    except (NotEditable, CannotRename) as error:
        raise DdlRefused(
            "TR626",
            f"an online schema change cannot be followed: {error}: {ddl.statement[:200]}",
            hint="make the statement's change on the downstream by hand, and ignore the statement with a filter rule"
            " that has its text as sql-pattern",
        ) from error
    return work.result


class _OnlineDdl:
    """The translation of one DDL."""

    def __init__(
        self, tables: OnlineTables, ddl: SchemaChanged, options: DdlOptions, defined: Defined
    ) -> None:
        self.result = OnlineResult(tables)
        self._ddl, self._options, self._defined = ddl, options, defined
        self._flavor, self._mode = ddl.source_flavor, ddl.mode

    def _run(self, *statements: SchemaChanged) -> None:
        self.result.statements += statements

    def _hide(self, hidden: HiddenTable) -> None:
        self.result.tables = self.result.tables.with_table(hidden)

    def _forget(self, *names: QualifiedName) -> None:
        self.result.tables = self.result.tables.without(*names)

    # -- CREATE ----------------------------------------------------------------------------------

    def create(self) -> None:
        db, table = self._ddl.tables[0].db, self._ddl.tables[0].table
        there = self.result.tables.get(db, table)
        if there is not None and not replaces(self._ddl.statement, self._flavor, sql_mode=self._mode):
            return  # IF NOT EXISTS
        if there is not None:
            self._forget(there.name)
        for waiting in self.result.tables.shadows_of(db, table):
            self._drop_real(waiting)
        hidden = self._hidden_table(db, table)
        if hidden is None:
            self._run(self._ddl)
            return
        _log.info("online_ddl_begins", table=f"{db}.{hidden.real}", hidden=table, shadow=hidden.shadow)
        self._hide(hidden)

    def _hidden_table(self, db: str, table: str) -> HiddenTable | None:
        """Return the entry for the new table if a tool made it and it can be hidden."""
        options = self._options
        if not options.online_ddl:
            return None
        real = options.shadow_of(table)
        if real is not None and self._is_like(db, real):
            return HiddenTable(db, table, real, True, (self._ddl,))
        real = options.trash_of(table)
        if real is None or self._defined(db, real) is None:
            return None
        if not made_by_ghost(self._ddl.statement, self._flavor, sql_mode=self._mode):
            return None
        return HiddenTable(db, table, real, False)

    def _is_like(self, db: str, real: str) -> bool:
        """Whether the new table is defined exactly as the real one is on the downstream."""
        if self.result.tables.get(db, real) is not None:
            return False
        shown = self._defined(db, real)
        if shown is None or "FOREIGN KEY" in shown.upper():
            return False
        text = self._ddl.statement
        source = like_source(text, self._ddl.default_db, self._flavor, sql_mode=self._mode)
        if source is not None:
            return source == (db, real)
        return body(text, self._flavor, sql_mode=self._mode) == body(shown, self._flavor)

    # -- ALTER and other changes of one table ----------------------------------------------------

    def change(self) -> None:
        """Translate ALTER TABLE, DDL on indexes, TRUNCATE, and DDL that does not concern tables."""
        hidden = [self.result.tables.get(table.db, table.table) for table in self._ddl.tables]
        found = [one for one in hidden if one is not None]
        if not found or "VIEW" in self._ddl.kind or "SEQUENCE" in self._ddl.kind:
            self._run(self._ddl)
            self._follow()
            return
        if len(self._ddl.tables) > 1 or self._ddl.tables[0].renamed_to is not None:
            raise self._not_replicated(found[0], "ALTER TABLE exchanges or renames it")
        if found[0].shadow and self._ddl.kind != "TRUNCATE TABLE":
            self._record(found[0])

    def _follow(self) -> None:
        """Record that ALTER TABLE … RENAME may rename a real table."""
        for table in self._ddl.tables:
            if table.renamed_to is not None:
                self._record_rename(
                    (table.db, table.table), (table.renamed_to_db or table.db, table.renamed_to)
                )

    def _record(self, hidden: HiddenTable) -> None:
        statements = (*hidden.statements, self._ddl)
        if is_reproducible(statements[1:]):
            self._hide(replace(hidden, statements=statements))
        elif hidden.rows:
            raise DdlRefused(
                "TR627",
                f"an online schema change of {hidden.db}.{hidden.real} fills {hidden.table} with values that an ALTER"
                f" of the real table would not give: {self._ddl.statement[:200]}",
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
            hidden = self.result.tables.get(table.db, table.table)
            if hidden is not None:
                self._forget(hidden.name)
                if hidden.dropped:
                    self._drop_real(hidden)
            elif not self._postponed(table.db, table.table):
                kept.append(index)
        if kept:
            self._run(self._part(kept))

    def _postponed(self, db: str, table: str) -> bool:
        """Whether the tool drops the real table before the shadow table gets its name (pt-osc: drop_swap)."""
        open_ones = [h for h in self.result.tables.shadows_of(db, table) if h.moved is None and not h.dropped]
        if not open_ones:
            return False
        self._hide(replace(open_ones[-1], dropped=True))
        return True

    def _drop_real(self, hidden: HiddenTable) -> None:
        """Drop the real table downstream: its name does not go to the shadow table after all."""
        if not hidden.dropped:
            return
        if self.result.tables.get(*hidden.name) is not None:
            self._hide(replace(hidden, dropped=False))
        text = f"DROP TABLE IF EXISTS {quoted(hidden.db, hidden.real)}"
        self._run(self._statement(text, "DROP TABLE", TableChanged(hidden.db, hidden.real)))

    def drop_database(self) -> None:
        self._run(self._ddl)
        gone = self._ddl_database()
        self._forget(*(h.name for h in self.result.tables.tables if h.db == gone))

    def _ddl_database(self) -> str:
        found = classify(self._ddl.statement, self._ddl.default_db, self._flavor, sql_mode=self._mode)
        return found.database or self._ddl.default_db

    # -- RENAME ----------------------------------------------------------------------------------

    def rename(self) -> None:
        """Translate each pair: hidden tables are renamed in the result, the other tables on the downstream."""
        kept: list[int] = []
        pairs = [((t.db, t.table), (t.renamed_to_db or t.db, t.renamed_to or "")) for t in self._ddl.tables]
        alters: list[SchemaChanged] = []
        for index, (old, new) in enumerate(pairs):
            hidden = self.result.tables.get(*old)
            if hidden is None:
                self._check_creation_seen(old, new, pairs)
                kept.append(index)
                self._record_rename(old, new)
            elif hidden.shadow and new == (hidden.db, hidden.real):
                alters += self._swap(hidden, pairs, kept)
            else:
                self._rename_hidden(hidden, new)
        if kept:
            self._run(self._part(kept))
        self._run(*alters)

    def _check_creation_seen(
        self, old: QualifiedName, new: QualifiedName, pairs: Sequence[tuple[QualifiedName, QualifiedName]]
    ) -> None:
        """Raise DownstreamError TR626 for a swap with a shadow table that the downstream never had.

        If the downstream has the real table under its new name, the RENAME was already applied before a crash.
        """
        real = self._options.shadow_of(old[1]) if self._options.online_ddl else None
        if real is None or new != (old[0], real) or self._defined(*old) is not None:
            return
        away = [target for source, target in pairs if source == new]
        if not away or self._defined(*away[-1]) is not None:
            return
        raise DdlRefused(
            "TR626",
            f"an online schema change started before the channel did, so its ALTERs are not known: {'.'.join(old)}"
            f" becomes {'.'.join(new)}: {self._ddl.statement[:200]}",
            hint=f"alter {'.'.join(new)} on the downstream to the upstream's definition, ignore the statement with a"
            " filter rule that has its text as sql-pattern, and start again",
        )

    def _record_rename(self, old: QualifiedName, new: QualifiedName) -> None:
        """Record the new name of a real table that a tool is changing."""
        for hidden in self.result.tables.tables:
            if hidden.shadow and old == (hidden.db, hidden.moved or hidden.real):
                if new[0] != hidden.db:
                    raise self._not_replicated(hidden, "its real table moves to another database")
                self._hide(replace(hidden, moved=None if new[1] == hidden.real else new[1]))

    def _swap(
        self, hidden: HiddenTable, pairs: Sequence[tuple[QualifiedName, QualifiedName]], kept: list[int]
    ) -> list[SchemaChanged]:
        """Return the ALTERs of the real table, which stays when the shadow table gets its name upstream."""
        real = (hidden.db, hidden.real)
        current = self.result.tables.get(*hidden.name) or hidden
        self._forget(hidden.name)
        if current.moved is None and not current.dropped:
            raise self._not_replicated(hidden, "the real table still exists")
        if current.moved is not None:
            away = (hidden.db, current.moved)
            now = [index for index in kept if pairs[index] == (real, away)]
            if now:
                kept.remove(now[-1])
            else:
                self._run(self._rename_back(away, real))
            self._hide(HiddenTable(*away, hidden.real, False))
        _log.info("online_ddl_ends", table=".".join(real), alters=len(hidden.alters))
        return [self._for_real_table(alter, hidden) for alter in hidden.alters]

    def _rename_back(self, away: QualifiedName, real: QualifiedName) -> SchemaChanged:
        names = f"{quoted(*away)} TO {quoted(*real)}"
        return self._statement(f"RENAME TABLE {names}", "RENAME TABLE", TableChanged(*away, *real))

    def _for_real_table(self, alter: SchemaChanged, hidden: HiddenTable) -> SchemaChanged:
        """Return an ALTER of the shadow table as one of the real table."""

        def name(db: str, table: str | None) -> tuple[str, str | None]:
            return (db, hidden.real) if (db, table) == hidden.name else (db, table)

        flavor = alter.source_flavor
        made = rename(alter.statement, alter.default_db, flavor, name, sql_mode=alter.mode)
        tables = (TableChanged(hidden.db, hidden.real),)
        return replace(alter, statement=made.statement, default_db=made.default_db, tables=tables)

    def _rename_hidden(self, hidden: HiddenTable, new: QualifiedName) -> None:
        options = self._options
        if new[0] != hidden.db or hidden.real not in (options.shadow_of(new[1]), options.trash_of(new[1])):
            raise self._not_replicated(hidden, f"it becomes {'.'.join(new)}")
        self._forget(hidden.name)
        self._hide(replace(hidden, table=new[1]))

    # -- texts -----------------------------------------------------------------------------------

    def _part(self, kept: Sequence[int]) -> SchemaChanged:
        if len(kept) == len(self._ddl.tables):
            return self._ddl
        text = keep_items(self._ddl.statement, self._ddl.default_db, self._flavor, kept, sql_mode=self._mode)
        return replace(self._ddl, statement=text, tables=tuple(self._ddl.tables[index] for index in kept))

    def _statement(self, text: str, kind: str, table: TableChanged) -> SchemaChanged:
        return replace(self._ddl, statement=text, kind=kind, tables=(table,))

    def _not_replicated(self, hidden: HiddenTable, why: str) -> DownstreamError:
        return DdlRefused(
            "TR626",
            f"the downstream does not have {hidden.db}.{hidden.table}, a table of an online schema change, and {why}:"
            f" {self._ddl.statement[:200]}",
            hint="create it on the downstream with the upstream's rows, set online_tables = NULL for the channel in"
            " tailrace.relay_log_info, and start again with [ddl] online-ddl = false",
        )
