"""Decides what a channel does with an upstream's DDL: ignore it, run it, run it under other names, or stop.

On a downstream table into which several upstream tables are merged, only CREATE TABLE is run, as CREATE TABLE IF NOT
EXISTS. Any other DDL of one upstream table would change the rows or the structure of all of them, so it is not run:
``spark_consumer.ddl.merged`` decides whether it may be skipped.

A DROP or RENAME of several tables is reduced to the replicated ones. A DDL that moves rows between a replicated table
and one that is not (RENAME, EXCHANGE PARTITION) stops the channel.

DDL on views, stored programs and accounts: the channel applies it, ignores it or stops, according to ``[ddl]``.

A routine's or event's body may name tables in any way, so it is not rewritten: if routes concern its schema, the DDL is
left out. DROP gets IF EXISTS, because a copy of the upstream's tables often has no programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import structlog

from schemas.ddl import engine
from schemas.ddl.classify import classify
from schemas.ddl.kinds import ClassifiedStatement, family
from schemas.ddl.lexer import Flavor
from schemas.ddl.names import CannotRename, rename
from schemas.tables import TableFilter
from schemas.wire.epoch import SchemaChanged, TableChanged
from spark_consumer.ddl.alter_values import nondeterministic_values
from spark_consumer.ddl.edit import NotEditable, keep_items, with_definer, with_event_disabled, with_if_exists
from spark_consumer.plan.refusal import DdlRefused
from spark_consumer.rules.ddl_options import DdlOptions
from spark_consumer.rules.event_filter import EventFilter, rule_hint
from spark_consumer.rules.route import Router

DEFAULT_OPTIONS = DdlOptions()
_log = structlog.get_logger()
Known = Callable[[], Iterable[tuple[str, str]]]
#: whether the downstream has rows of an upstream table
HasRows = Callable[[str, str], bool]


class MergedDdl(DdlRefused):
    """TR623: a DDL on one of several tables that are merged into one."""


class DdlRules:
    """The rules of a channel that concern DDL."""

    def __init__(
        self,
        tables: TableFilter,
        events: EventFilter,
        router: Router,
        options: DdlOptions = DEFAULT_OPTIONS,
    ) -> None:
        self._tables, self._events, self._router, self._options = tables, events, router, options

    def translate(
        self, ddl: SchemaChanged, known: Known, has_rows: HasRows = lambda db, table: True
    ) -> SchemaChanged | None:
        """Return the DDL in the form for the downstream; None if it is not replicated.

        Args:
            known: returns the upstream's tables that have had rows; called only if there are routes.
            has_rows: called only for an ALTER TABLE that fills rows with values that are not in the log.

        Raises:
            DownstreamError: TR622, its replicated part cannot be cut out; TR623, it would change a merged table;
                TR624, its names cannot be changed safely; TR628, the channel is set to stop at such DDL; TR629, it
                would give rows other values than upstream.
        """
        if not allowed(ddl, self._options):
            return None
        if is_object(ddl.kind):
            return translate_object(ddl, _classified(ddl), self._tables, self._events, self._router)
        part = self._part(ddl, has_rows)
        if part is None:
            return None
        part = in_innodb(part) if self._options.engines == "innodb" else part
        return self._routed(part, known) if self._router.routes else part

    def is_replicated(self, ddl: SchemaChanged, known: Known) -> bool:
        """Whether the channel applies at least a part of the DDL, or stops at it."""
        try:
            return self.translate(ddl, known) is not None
        except DdlRefused:
            return True

    def _part(self, ddl: SchemaChanged, has_rows: HasRows) -> SchemaChanged | None:
        """Return the part of a DDL that the filters let through; None if nothing is left."""
        event = ddl.kind.lower()
        if _is_database(ddl):
            return self._logged(ddl, ddl if self._wants_database(ddl, event) else None)
        each = [self._wants(ddl, table, event) for table in ddl.tables]
        if not any(each):
            return self._logged(ddl, None)
        flavor, mode = ddl.source_flavor, ddl.mode
        kept = [index for index, wanted in enumerate(each) if wanted]
        text = ddl.statement
        reason = nondeterministic_values(text, flavor, sql_mode=mode) if ddl.kind == "ALTER TABLE" else ""
        if reason and any(has_rows(table.db, table.table) for table in ddl.tables):
            raise DdlRefused(
                "TR629",
                f"an ALTER TABLE would give rows other values downstream than upstream: {reason}: {text[:200]}",
                hint="stop the writes to the table upstream, give the downstream's table the upstream's definition and"
                " values, then run `tailrace error skip`",
            )
        try:
            if len(kept) < len(each):
                text = keep_items(text, ddl.default_db, flavor, kept, sql_mode=mode)
            if flavor == "mariadb" and ddl.kind == "DROP TABLE" and len(each) > 1:
                # MariaDB drops the tables that exist, and logs the whole list even if some did not exist.
                text = with_if_exists(text, flavor, sql_mode=mode)
        except NotEditable as error:
            raise DdlRefused(
                "TR622",
                f"a DDL names tables of which only some are replicated, and {error}: {ddl.statement[:200]}",
                hint="include or exclude all of them, or make its change to the replicated ones on the downstream by"
                " hand and ignore it with a filter rule that has its text as sql-pattern",
            ) from error
        return replace(ddl, statement=text, tables=tuple(ddl.tables[index] for index in kept))

    def _wants_database(self, ddl: SchemaChanged, event: str) -> bool:
        db = database_of(ddl)
        wanted = self._tables.allows_database(db) and not self._events.drops(db, None, event, ddl.statement)
        if wanted and ddl.kind.startswith("DROP") and not self._tables.allows_whole(db):
            raise DdlRefused(
                "TR622",
                f"a DROP DATABASE drops a database of which only some tables are replicated: {ddl.statement[:200]}",
                hint="drop the replicated tables on the downstream by hand, ignore the statement with "
                + rule_hint([event], db, None)
                + ", and start again",
            )
        return wanted

    @staticmethod
    def _logged(ddl: SchemaChanged, part: SchemaChanged | None) -> SchemaChanged | None:
        if part is None:
            _log.info("ddl_filtered", kind=ddl.kind, statement=ddl.statement[:200])
        return part

    def _wants(self, ddl: SchemaChanged, table: TableChanged, event: str) -> bool:
        wanted = self._tables.allows(table.db, table.table)
        if wanted and self._events.drops(table.db, table.table, event, ddl.statement):
            # The rule drops the statement as a whole, whatever the new name of a RENAME is.
            return False
        if table.renamed_to is not None:
            renamed = self._tables.allows(table.renamed_to_db or table.db, table.renamed_to)
            if renamed != wanted:
                raise DdlRefused(
                    "TR622",
                    f"of a renamed table's two names only one is replicated: {table.db}.{table.table}",
                    hint="include or exclude both names",
                )
        return wanted

    def _routed(self, ddl: SchemaChanged, known: Known) -> SchemaChanged:
        others = set(known())
        shared = self._shared(ddl, others)
        if shared and ddl.kind not in ("CREATE TABLE", "CREATE DATABASE"):
            raise MergedDdl(
                "TR623",
                f"a DDL on {shared}, which also has rows of other upstream tables: {ddl.statement[:200]}",
                hint="make the change that all its upstream tables need on the downstream by hand, ignore the statement"
                " with " + rule_hint([ddl.kind.lower()], *self._first_name(ddl)) + ", and start again",
            )
        try:
            renamed = rename(
                ddl.statement,
                ddl.default_db,
                ddl.source_flavor,
                self._router.name,
                sql_mode=ddl.mode,
                if_not_exists=bool(shared),
                name_in_query=partial(self._name_in_query, others),
            )
        except CannotRename as error:
            raise DdlRefused(
                "TR624",
                f"the routes cannot be applied safely to a DDL: {error}: {ddl.statement[:200]}",
                hint="run it on the downstream by hand under the right names, and ignore it with a filter rule"
                " that has its text as sql-pattern",
            ) from error
        tables = tuple(map(self._routed_table, ddl.tables))
        return replace(ddl, statement=renamed.statement, default_db=renamed.default_db, tables=tables)

    def _name_in_query(
        self, others: set[tuple[str, str]], db: str, table: str | None
    ) -> tuple[str, str | None]:
        """Return the downstream's name of a table that a view reads."""
        if table is not None and self.is_merged((db, table), others):
            raise CannotRename(
                f"its query reads {db}.{table}, whose downstream table also has rows of other tables"
            )
        return self._router.name(db, table)

    def is_merged(self, name: tuple[str, str], others: set[tuple[str, str]]) -> bool:
        """Whether the downstream's table has rows of several tables; ``others`` are the tables that have had rows."""
        target = self._router.table(*name)
        allowed = (other for other in others - {name} if self._tables.allows(*other))
        return self._router.merges(*target) or any(self._router.table(*other) == target for other in allowed)

    def _routed_table(self, table: TableChanged) -> TableChanged:
        db, name = self._router.table(table.db, table.table)
        if table.renamed_to is None:
            return replace(table, db=db, table=name)
        to_db, to_name = self._router.table(table.renamed_to_db or table.db, table.renamed_to)
        return replace(table, db=db, table=name, renamed_to_db=to_db, renamed_to=to_name)

    def _shared(self, ddl: SchemaChanged, known: set[tuple[str, str]]) -> str:
        """Return the object of the DDL if it shares its downstream name with others; "" if it does not."""
        router = self._router
        if _is_database(ddl):
            db = database_of(ddl)
            scattered = ddl.kind.startswith("DROP") and router.splits_schema(db)
            target = router.database(db)
            alone = not scattered and not router.is_merged_schema(target)
            return "" if alone else f"schema {db}, downstream {target}"
        names = set()
        for table in ddl.tables:
            names.add((table.db, table.table))
            if table.renamed_to is not None:
                names.add((table.renamed_to_db or table.db, table.renamed_to))
        for name in sorted(names):
            if self.is_merged(name, known - names):
                return f"{'.'.join(name)}, downstream {'.'.join(router.table(*name))}"
        return ""

    @staticmethod
    def _first_name(ddl: SchemaChanged) -> tuple[str, str | None]:
        if _is_database(ddl):
            return database_of(ddl), None
        return ddl.tables[0].db, ddl.tables[0].table


def in_innodb(ddl: SchemaChanged) -> SchemaChanged:
    """Replace a named or default engine without transactions by InnoDB in a CREATE or ALTER TABLE."""
    if ddl.kind not in ("CREATE TABLE", "ALTER TABLE"):
        return ddl
    flavor, settings = ddl.source_flavor, dict(ddl.settings)
    text = engine.with_innodb(ddl.statement, flavor, sql_mode=ddl.mode)
    default = settings.get("default_storage_engine", "")
    if text == ddl.statement and default.upper() not in engine.REPLACEABLE:
        return ddl
    if default.upper() in engine.REPLACEABLE:
        settings["default_storage_engine"] = engine.INNODB
    # The server then ignores options that InnoDB does not have instead of refusing them.
    settings["innodb_strict_mode"] = "0"
    return replace(ddl, statement=text, settings=tuple(settings.items()))


def _is_database(ddl: SchemaChanged) -> bool:
    return ddl.kind.endswith(" DATABASE")


def database_of(ddl: SchemaChanged) -> str:
    """Return the database that a CREATE, ALTER or DROP DATABASE names."""
    return _classified(ddl).database or ddl.default_db


def _classified(ddl: SchemaChanged) -> ClassifiedStatement:
    flavor = ddl.source_flavor
    return classify(ddl.statement, ddl.default_db, flavor, sql_mode=ddl.mode)


def is_object(kind: str) -> bool:
    """Whether DDL of this kind concerns a stored program or an account."""
    return family(kind) not in ("", "views")


def allowed(ddl: SchemaChanged, options: DdlOptions) -> bool:
    """Whether the channel applies DDL of this family. Raises DownstreamError TR628 if the channel has to stop."""
    kind = family(ddl.kind)
    chosen = options.of(kind)
    if chosen == "stop":
        raise DdlRefused(
            "TR628",
            f'the channel stops at DDL on {kind} ([ddl] {kind} = "stop"): {ddl.shown[:200]}',
            hint=f'make the same change on the downstream by hand, set [ddl] {kind} = "ignore", and start again',
        )
    if chosen == "ignore":
        _log.info("ddl_ignored", kind=ddl.kind, statement=ddl.shown[:200], setting=f"ddl.{kind}")
    return chosen == "apply"


def translate_object(
    ddl: SchemaChanged,
    classified: ClassifiedStatement,
    tables: TableFilter,
    events: EventFilter,
    router: Router,
) -> SchemaChanged | None:
    """Translate DDL on a program or an account; None if filters or routes leave it out.

    Raises:
        DownstreamError: TR624, the statement cannot be changed safely.
    """
    if classified.program is None:
        return ddl
    db, name = classified.program
    if not tables.allows(db, name) or events.drops(db, name, ddl.kind.lower(), ddl.statement):
        _log.info("ddl_filtered", kind=ddl.kind, statement=ddl.statement[:200])
        return None
    if router.affects_schema(db):
        _log.warning(
            "ddl_ignored", kind=ddl.kind, statement=ddl.statement[:200], reason="a route concerns its schema"
        )
        return None
    flavor, mode = ddl.source_flavor, ddl.mode
    try:
        if ddl.kind.startswith("DROP"):
            return replace(ddl, statement=with_if_exists(ddl.statement, flavor, sql_mode=mode))
        if ddl.kind.endswith("EVENT"):
            return replace(
                ddl, statement=with_event_disabled(_with_definer(ddl, flavor), flavor, sql_mode=mode)
            )
    except NotEditable as error:
        raise DdlRefused(
            "TR624",
            f"a statement cannot be changed safely for the downstream: {error}: {ddl.statement[:200]}",
            hint="run it by hand on the downstream, and ignore it with a filter rule that has its text as sql-pattern",
        ) from error
    return ddl


def _with_definer(ddl: SchemaChanged, flavor: Flavor) -> str:
    """Make the upstream session's account the definer of an ALTER EVENT; else it would be the channel's account."""
    settings = dict(ddl.settings)
    user, host = settings.get("invoker_user"), settings.get("invoker_host")
    if ddl.kind != "ALTER EVENT" or not user or host is None:
        return ddl.statement
    return with_definer(ddl.statement, flavor, user, host, sql_mode=ddl.mode)
