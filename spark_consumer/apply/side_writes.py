"""Finds triggers and events of the downstream that would change replicated rows in addition to the channel.

The log has the rows that the upstream's triggers and events wrote. The same program on the downstream, for example from
a copy by mysqldump, would write them a second time, and affected-row counts would not show it. So it must be known of
each enabled event, and of each trigger on a table that the channel writes, that it changes no replicated row. The
tables in its text are checked, the routines and views that it uses, and the triggers and cascading foreign keys of
those tables. If this cannot be determined, the program is treated as changing rows.

Triggers are read in the writing transaction, under the tables' metadata locks, so none can be created in between.
Routines and events have no such locks; they are read again in each transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from schemas.ddl.lexer import Dialect
from schemas.errors import NOTHING_APPLIED, DownstreamError, Where
from schemas.letter_case import lowered
from schemas.quote import quoted
from schemas.tables import QualifiedName
from spark_consumer.apply.tables import position_store
from spark_consumer.plan.plan import TablePlan
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.route import Router
from spark_consumer.rules.rules import Rules
from spark_consumer.rules.scope import Scope
from spark_consumer.target.programs.privileges import Privileges, read_privileges
from spark_consumer.target.programs.text import Path, ProgramEffects, effects_of, query_effects
from spark_consumer.target.session import Session

#: returns the channel that may write rows into a downstream table: "" for this channel, None if there is none
Replicated = Callable[[str, str], str | None]

_OURS = "tailrace"
# Their rows are in other tables, or on other servers.
_ELSEWHERE = frozenset({"MRG_MYISAM", "FEDERATED", "SPIDER", "CONNECT", "NDBCLUSTER"})
_TABLES = frozenset({"BASE TABLE", "SYSTEM VERSIONED"})
_ANSI, _NO_ESCAPES = "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES"


@dataclass(frozen=True)
class Program:
    """A stored program.

    Attributes:
        kind: ``trigger``, ``event``, ``procedure``, ``function``, ``package``.
        db: its schema, which also applies to names without a schema in its text.
        body: its text; None if the account may not read it.
        table: the table of a trigger.
        parameters: the parameters of a routine, in lower case.
    """

    kind: str
    db: str
    name: str
    body: str | None
    dialect: Dialect
    table: str | None = None
    parameters: frozenset[str] = frozenset()

    @property
    def shown(self) -> str:
        return f"the {self.kind} {self.db}.{self.name}"


@dataclass(frozen=True)
class SideWrite:
    """A program that changes or may change replicated rows.

    Attributes:
        why: the reason, as a clause.
        remedy: the hint.
    """

    program: Program
    why: str
    remedy: str

    @property
    def shown(self) -> str:
        one = self.program
        return f"{one.kind} {one.db}.{one.name}" + (f" on {one.db}.{one.table}" if one.table else "")


@dataclass
class SideWrites:
    """Checks the programs in one channel's transactions.

    Args:
        channel: the channel's key.
        rules: the channel's rules.
    """

    channel: ChannelKey
    rules: Rules
    _grants: Sequence[Any] | None = field(default=None, init=False)
    _privileges: Privileges | None = field(default=None, init=False)

    def check_events(self, session: Session, where: Where) -> None:
        """Raise for an enabled event that changes or may change replicated rows, and for triggers on our own tables.

        Raises:
            DownstreamError: TR657.
        """
        _raise_first(events_beside(session, self._rights(session), self._replicated(session)), where)

    def check_tables(self, session: Session, tables: Mapping[QualifiedName, TablePlan], where: Where) -> None:
        """Raise if a trigger changes or may change replicated rows when these tables are written.

        Raises:
            DownstreamError: TR657, there is such a trigger; TR658, the account cannot see whether there is one.
        """
        if not tables:
            return
        rights = self._rights(session)
        if hidden := lacking(rights, tables):
            raise DownstreamError(
                "TR658",
                f"the account cannot see {' and '.join(what for _, what, _ in hidden)} of the downstream, which may"
                f" change replicated rows: it lacks {' and '.join(right for right, *_ in hidden)}",
                where=where,
                hint="; ".join(remedy for *_, remedy in hidden),
                applied=NOTHING_APPLIED,
            )
        with_triggers = [name for name, table in tables.items() if table.triggers]
        cascading = [name for name, table in tables.items() if table.cascades]
        if with_triggers or cascading:
            found = triggers_beside(session, rights, self._replicated(session), with_triggers, cascading)
            _raise_first(found, where)

    def _replicated(self, session: Session) -> Replicated:
        """Return the function for this channel and the others that write to the server."""
        others = [one for one in scopes(session, self.rules.router) if one[0] != self.channel]
        return lambda db, table: written_by(db, table, [self.rules], others)

    def _rights(self, session: Session) -> Privileges:
        """The account's rights, which may be revoked during the run."""
        grants = session.rows("SHOW GRANTS")
        if self._privileges is None or grants != self._grants:
            self._grants, self._privileges = grants, read_privileges(session)
        return self._privileges


def scopes(session: Session, router: Router) -> list[tuple[ChannelKey, Scope]]:
    """Return the scopes of the channels that have written to a server."""
    found = [(key, Scope.from_json(said)) for key, said in position_store.scopes(session)]
    # Names are in lower case on this server, but patterns may not be.
    return found if router.folded is None else [(key, _folded(scope)) for key, scope in found]


def written_by(
    db: str, table: str, own: Iterable[Rules], others: Iterable[tuple[ChannelKey, Scope]]
) -> str | None:
    """The channel that may have rows in a downstream table: "" for this channel, None if there is none."""
    if any(rules.may_write_to(db, table) for rules in own):
        return ""
    return next((f"channel {key}" for key, scope in others if scope.writes((db, table))), None)


def _folded(scope: Scope) -> Scope:
    include, exclude = (tuple(map(lowered, patterns)) for patterns in (scope.include, scope.exclude))
    return Scope(include, exclude, Router(scope.routes, ()).routes)


def events_beside(session: Session, privileges: Privileges, replicated: Replicated) -> Iterator[SideWrite]:
    """Yield the enabled events that change or may change replicated rows, and all triggers on our own tables."""
    server = _ServerCatalog(session, privileges)
    for program in server.triggers("EVENT_OBJECT_SCHEMA = %s", (_OURS,)):
        yield SideWrite(program, "it is on a table of Tailrace's own", _dropped(program))
    yield from _judged(server, server.events(), replicated)


def triggers_beside(
    session: Session,
    privileges: Privileges,
    replicated: Replicated,
    tables: Iterable[QualifiedName],
    cascading: Iterable[QualifiedName],
) -> Iterator[SideWrite]:
    """Yield the triggers that change or may change replicated rows.

    Args:
        tables: the tables whose triggers run.
        cascading: the tables whose foreign keys act, so that triggers of other tables may run.
    """
    server = _ServerCatalog(session, privileges)
    names = _with_children(server, tables, cascading)
    yield from _judged(server, [one for name in names for one in server.triggers_on(name)], replicated)


def _judged(
    server: _ServerCatalog, programs: Sequence[Program], replicated: Replicated
) -> Iterator[SideWrite]:
    for program in programs:
        if harm := _Closure(server, replicated).harm(program):
            yield SideWrite(program, harm.why, _remedy(program, harm))


def _with_children(
    server: _ServerCatalog, tables: Iterable[QualifiedName], cascading: Iterable[QualifiedName]
) -> list[QualifiedName]:
    found = dict.fromkeys(tables)
    pending = list(cascading)
    while pending:
        for child in server.children(pending.pop()):
            if child not in found:
                found[child] = None
                pending.append(child)
    return list(found)


def _raise_first(found: Iterable[SideWrite], where: Where) -> None:
    for one in found:
        raise DownstreamError(
            "TR657",
            f"the downstream's {one.shown} may change replicated rows: {one.why}",
            where=where,
            hint=one.remedy,
            applied=NOTHING_APPLIED,
        )


def lacking(privileges: Privileges, tables: Iterable[QualifiedName]) -> list[tuple[str, str, str]]:
    """Return missing privileges that hide programs: the privilege, the programs, and the GRANT that helps."""
    found = []
    names = [*tables, (_OURS, "relay_log_info")]
    if blind := [name for name in names if not privileges.on_table("TRIGGER", *name)]:
        found.append(("TRIGGER", f"triggers on {'.'.join(blind[0])}", _grant(privileges, "TRIGGER", blind)))
    schemas = dict.fromkeys(db for db, _ in names if not privileges.on_schema("EVENT", db))
    if schemas := {db: None for db in schemas if db != _OURS}:
        blind = [(db, "*") for db in schemas]
        found.append(("EVENT", "events", _grant(privileges, "EVENT", blind)))
    return found


def _grant(privileges: Privileges, right: str, names: Sequence[QualifiedName]) -> str:
    places = (
        [f"{quoted(db)}.*" for db in dict.fromkeys(db for db, _ in names)] if privileges.scoped else ["*.*"]
    )
    return "; ".join(f"GRANT {right} ON {place} TO {privileges.account}" for place in places)


def _dropped(program: Program) -> str:
    return f"DROP TRIGGER {quoted(program.db, program.name)} on the downstream"


def _remedy(program: Program, harm: _Harm) -> str:
    where = "the log already contains the rows it writes on the upstream"
    gone = (
        f"ALTER EVENT {quoted(program.db, program.name)} DISABLE on the downstream"
        if program.kind == "event"
        else _dropped(program)
    )
    # If the program changes a table, that table may be one to leave out.
    rules = ", or exclude that table from the channel ([tables] exclude)" if harm.changes_table else ""
    return f"{gone} ({where}){rules}"


class _ServerCatalog:
    """Programs, tables and foreign keys of a server; each is read once, at its first use."""

    def __init__(self, session: Session, privileges: Privileges) -> None:
        self.session = session
        self._privileges = privileges
        version = session.version
        self._number = version[0] * 10_000 + version[1] * 100 + (version[2] if len(version) > 2 else 0)
        self._folds: bool | None = None
        self._children: dict[QualifiedName, list[QualifiedName]] | None = None
        self._kinds: dict[str, dict[str, str]] = {}

    def _dialect(self, sql_mode: str) -> Dialect:
        modes = sql_mode.split(",")
        return Dialect(self.session.flavor, _ANSI in modes, _NO_ESCAPES not in modes, self._number)

    def _name(self, name: str) -> str:
        """Return a name in the letter case in which this server compares names of schemas and tables."""
        if self._folds is None:
            self._folds = bool(self.session.value("SELECT @@lower_case_table_names"))
        return lowered(name) if self._folds else name

    def events(self) -> list[Program]:
        """Return the enabled events, whether or not the scheduler runs."""
        rows = self.session.rows(
            "SELECT EVENT_SCHEMA, EVENT_NAME, EVENT_DEFINITION, SQL_MODE FROM information_schema.EVENTS"
            " WHERE STATUS = 'ENABLED' ORDER BY EVENT_SCHEMA, EVENT_NAME"
        )
        return [Program("event", db, name, _text(body), self._dialect(mode)) for db, name, body, mode in rows]

    def triggers_on(self, table: QualifiedName) -> list[Program]:
        return self.triggers("EVENT_OBJECT_SCHEMA = %s AND EVENT_OBJECT_TABLE = %s", table)

    def triggers(self, condition: str, args: tuple[str, ...]) -> list[Program]:
        rows = self.session.rows(
            "SELECT TRIGGER_SCHEMA, TRIGGER_NAME, ACTION_STATEMENT, SQL_MODE, EVENT_OBJECT_TABLE"
            f" FROM information_schema.TRIGGERS WHERE {condition} ORDER BY TRIGGER_NAME",
            args,
        )
        return [
            Program("trigger", db, name, _text(body), self._dialect(mode), table)
            for db, name, body, mode, table in rows
        ]

    def routines(self, db: str, name: str) -> list[Program]:
        """Return the procedure, function and package with a name."""
        rows = self.session.rows(
            "SELECT ROUTINE_TYPE, ROUTINE_SCHEMA, ROUTINE_NAME, ROUTINE_DEFINITION, SQL_MODE, ROUTINE_BODY"
            " FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = %s AND ROUTINE_NAME = %s",
            (self._name(db), name),
        )
        if not rows:
            return []
        parameters = self.session.rows(
            "SELECT PARAMETER_NAME FROM information_schema.PARAMETERS"
            " WHERE SPECIFIC_SCHEMA = %s AND SPECIFIC_NAME = %s AND PARAMETER_NAME IS NOT NULL",
            (self._name(db), name),
        )
        names = frozenset(str(parameter).lower() for (parameter,) in parameters)
        return [
            # A routine in another language than SQL cannot be read.
            Program(
                kind.lower(),
                schema,
                routine,
                _text(text) if body == "SQL" else None,
                self._dialect(mode),
                None,
                names,
            )
            for kind, schema, routine, text, mode, body in rows
        ]

    def kind(self, db: str, table: str) -> str:
        """Return the kind of a table, such as ``BASE TABLE`` or ``VIEW``; "" if it does not exist."""
        db, table = self._name(db), self._name(table)
        if db not in self._kinds:
            rows = self.session.rows(
                "SELECT TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s", (db,)
            )
            self._kinds[db] = {str(name): str(kind) for name, kind in rows}
        return self._kinds[db].get(table, "")

    def engine(self, db: str, table: str) -> str:
        query = "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
        return str(self.session.value(query, (self._name(db), self._name(table))) or "")

    def view(self, db: str, name: str) -> ProgramEffects:
        """Return the tables that a view's query reads, as ``writes``, and the routines that it runs."""
        query = (
            "SELECT VIEW_DEFINITION FROM information_schema.VIEWS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
        )
        text = _text(self.session.value(query, (self._name(db), self._name(name))))
        if not text:
            return ProgramEffects(doubt=f"the query of the view {db}.{name} cannot be read")
        # The server has formatted the query, and it is not known with which of these modes.
        one, other = (query_effects(text, self._dialect(mode)) for mode in ("", _NO_ESCAPES))
        return ProgramEffects(
            one.writes | other.writes,
            one.calls | other.calls,
            one.names | other.names,
            doubt=one.doubt and other.doubt,
        )

    def sees_all_of(self, db: str) -> bool:
        """Whether the account sees all tables of a schema, with their triggers."""
        return self._privileges.on_schema("TRIGGER", self._name(db))

    def sees_triggers(self, db: str, table: str) -> bool:
        return self._privileges.on_table("TRIGGER", self._name(db), self._name(table))

    def sees_routines(self, db: str) -> bool:
        rights = ("EXECUTE", "CREATE ROUTINE", "ALTER ROUTINE", "SHOW_ROUTINE")
        return any(self._privileges.on_schema(right, self._name(db)) for right in rights)

    def children(self, parent: QualifiedName) -> list[QualifiedName]:
        """Return the tables in which a foreign key to this one cascades."""
        if self._children is None:
            self._children = {}
            for db, table, parent_db, parent_table in self.session.rows(
                "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME"
                " FROM information_schema.REFERENTIAL_CONSTRAINTS"
                " WHERE DELETE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT')"
                " OR UPDATE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT')"
            ):
                above = (str(parent_db).lower(), str(parent_table).lower())
                self._children.setdefault(above, []).append((str(db), str(table)))
        return self._children.get((parent[0].lower(), parent[1].lower()), [])


def _text(value: object) -> str | None:
    if value is None:
        return None
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


@dataclass(frozen=True)
class _Harm:
    """A reason why a program changes or may change replicated rows.

    Attributes:
        why: the reason, as a clause.
        changes_table: whether the reason is a table that it changes.
    """

    why: str
    changes_table: bool = False


@dataclass
class _Closure:
    """Follows the effects of one program step by step, until one of them changes a replicated row."""

    server: _ServerCatalog
    replicated: Replicated
    _programs: list[tuple[Program, str]] = field(default_factory=list)
    _tables: list[tuple[QualifiedName, str]] = field(default_factory=list)
    _seen: set[object] = field(default_factory=set)

    def harm(self, program: Program) -> _Harm | None:
        """Return why it may change replicated rows; None if it certainly does not."""
        self._programs.append((program, ""))
        while self._programs or self._tables:
            if self._tables:
                harm = self._of_table(*self._tables.pop())
            else:
                why = self._of_program(*self._programs.pop())
                harm = _Harm(why) if why else None
            if harm is not None:
                return harm
        return None

    def _of_program(self, program: Program, through: str) -> str:
        if not self._is_new(("program", program.kind, program.db, program.name)):
            return ""
        if program.body is None:
            return f"the text of {program.shown} cannot be read{through}"
        found = effects_of(program.body, program.dialect, program.parameters)
        if found.doubt:
            return f"{found.doubt}{through}"
        for path in sorted(found.writes):
            self._tables.append((_full(path, program.db), through))
        return self._go_on(found, program, through)

    def _go_on(self, found: ProgramEffects, program: Program, through: str) -> str:
        """Follow functions, also those in views, and sequences, which change when they are read."""
        for path in sorted(found.calls):
            if why := self._of_call(path, program, through):
                return why
        # In Oracle's grammar the sequence's name and a word after it return its next number.
        numbered = {path[:-1] for path in found.names if len(path) > 1 and path[-1].lower() == "nextval"}
        for path in sorted((found.names | numbered) - found.writes):
            name = _full(path, program.db)
            kind = self.server.kind(*name) if len(path) < 3 else ""
            if kind == "SEQUENCE":
                self._tables.append((name, through))
            elif kind and kind not in _TABLES and self._is_new(("query", name)):
                inner = replace(self.server.view(*name), writes=frozenset())
                if why := inner.doubt or self._go_on(inner, replace(program, db=name[0]), through):
                    return why
        return ""

    def _of_call(self, path: Path, program: Program, through: str) -> str:
        """Follow a routine: ``name``, ``db.name``, ``package.name`` or ``db.package.name``."""
        places = [(program.db, path[0]), *([path[:2]] if len(path) > 1 else [])]
        found = [one for db, name in places for one in self.server.routines(db, name)]
        for one in found:
            self._programs.append((one, through or f", through {one.shown}"))
        if found:
            return ""
        if len(path) > 1:
            return f"the routine {'.'.join(path)} that it runs cannot be read{through}"
        # Most are built-in functions.
        seen = self.server.sees_routines(program.db)
        return "" if seen else f"the account cannot see the routines of {program.db}{through}"

    def _of_table(self, name: QualifiedName, through: str) -> _Harm | None:
        if not self._is_new(("table", name)):
            return None
        kind, shown = self.server.kind(*name), ".".join(name)
        if not kind:
            # Words, aliases and temporary tables, or tables of a schema that the account cannot see.
            if self.server.sees_all_of(name[0]):
                return None
            return _Harm(f"it changes {shown}, of which nothing is known{through}", changes_table=True)
        if kind in _TABLES or kind == "SEQUENCE":
            who = self.replicated(*name)
            if who is None and name[0] == _OURS:
                who = "Tailrace itself"
            if who is not None:
                other = f", which is {who}'s" if who else ""
                return _Harm(f"it changes {shown}{other}{through}", changes_table=True)
            return None if kind == "SEQUENCE" else self._of_base_table(name, through)
        found = self.server.view(*name)
        through = through or f", through the view {shown}"
        self._tables += [(_full(path, name[0]), through) for path in sorted(found.writes)]
        return _Harm(found.doubt) if found.doubt else None

    def _of_base_table(self, name: QualifiedName, through: str) -> _Harm | None:
        shown = ".".join(name)
        if (engine := self.server.engine(*name)).upper() in _ELSEWHERE:
            why = f"it changes {shown}, whose engine {engine} has its rows elsewhere{through}"
            return _Harm(why, changes_table=True)
        if not self.server.sees_triggers(*name):
            return _Harm(
                f"it changes {shown}, whose triggers the account cannot see{through}", changes_table=True
            )
        for trigger in self.server.triggers_on(name):
            self._programs.append((trigger, through or f", through {trigger.shown}"))
        self._tables += [
            (child, through or f", through foreign keys to {shown}") for child in self.server.children(name)
        ]
        return None

    def _is_new(self, what: object) -> bool:
        new = what not in self._seen
        self._seen.add(what)
        return new


def _full(path: Path, db: str) -> QualifiedName:
    return (db, path[0]) if len(path) == 1 else (path[0], path[1])
