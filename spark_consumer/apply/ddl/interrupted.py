"""Decides what is left to do of an interrupted DDL, as a pure function of its objects before it and now.

A statement that has the same result each time it runs is run again, unless its objects show that it is done. For a
statement that must not run twice the objects must show whether it ran, and they do: a table keeps its InnoDB id in
RENAME and EXCHANGE, an object exists after CREATE and does not after DROP, and ALTER changes the definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from schemas.ddl.alter_clauses import clauses_of
from schemas.ddl.cursor import Unparsable
from schemas.ddl.kinds import family
from schemas.ddl.lexer import LexError
from schemas.quote import quoted
from schemas.wire.epoch import SchemaChanged, TableChanged
from spark_consumer.apply.ddl.snapshot import (
    ABSENT,
    ACCOUNTS,
    BROKEN,
    NO_ROWS,
    UNKNOWN,
    ObjectState,
    Snapshot,
)
from spark_consumer.ddl.edit import NotEditable, as_alter_database, as_replacing, with_if_exists

_TYPES = {
    "TABLE": frozenset({"BASE TABLE", "SYSTEM VERSIONED"}),
    "VIEW": frozenset({"VIEW"}),
    "JSON DUALITY VIEW": frozenset({"VIEW"}),
    "SEQUENCE": frozenset({"SEQUENCE"}),
}


class UnknownOutcome(Exception):
    """The state does not show whether the DDL ran. The message is the reason."""


class InconsistentObjects(UnknownOutcome):
    """The state matches neither outcome: the server lost a table or cannot open it."""


def remaining_statement(
    ddl: SchemaChanged, before: Snapshot, now: Snapshot, *, mariadb: bool
) -> SchemaChanged | None:
    """Return the statement that is still to run: the DDL, the rest of it, or None.

    Args:
        before: its objects before it ran for the first time.
        now: the same objects, while no statement is running on them.
        mariadb: whether the downstream is a MariaDB server.

    Raises:
        UnknownOutcome: it cannot be determined.
    """
    verb, _, what = ddl.kind.partition(" ")
    if family(ddl.kind) == ACCOUNTS:
        return _accounts(ddl, before, now)
    if what == "INDEX" or ddl.kind == "ALTER TABLE":
        return _altered(ddl, before, now, mariadb)
    if ddl.kind == "RENAME TABLE":
        return _renamed(ddl, before, now, mariadb)
    if verb == "DROP":
        return _dropped(ddl, before, now)
    if verb == "CREATE":
        return _created(ddl, before, now, mariadb)
    if ddl.kind == "ALTER EVENT" and any(shown.kind for shown in before.objects.values()) and not _any(now):
        # It has another name now.
        return None
    # TRUNCATE, and ALTER of objects other than tables.
    return ddl


def lacks_expected_result(ddl: SchemaChanged, now: Snapshot) -> bool:
    """Whether a CREATE or DROP did not have its result although its ledger number is used.

    MariaDB logs the effects of a refused statement under the statement's number: CREATE OR REPLACE has dropped the old
    table, DROP of several tables the existing ones, DROP DATABASE the tables before the one that it could not drop.
    """
    verb, _, what = ddl.kind.partition(" ")
    if verb not in ("CREATE", "DROP") or what == "INDEX" or family(ddl.kind) == ACCOUNTS:
        return False
    return any(_is(shown, what) != (verb == "CREATE") for shown in now.objects.values())


def needs_identities(ddl: SchemaChanged) -> bool:
    """Whether definitions alone cannot show that the DDL has run."""
    if ddl.kind == "RENAME TABLE":
        return True
    return ddl.kind == "ALTER TABLE" and (len(ddl.tables) > 1 or _moves_columns(ddl))


def changed_too_recently(ddl: SchemaChanged, before: Snapshot) -> bool:
    """Whether only the time of a table's last change can show that the DDL ran, and it is within the same second."""
    return _moves_columns(ddl) and any(shown.created >= before.taken for shown in before.objects.values())


def _is(shown: ObjectState, what: str) -> bool:
    """Whether an object is of this kind."""
    return shown.kind in _TYPES[what] if what in _TYPES else bool(shown.kind)


def _any(snapshot: Snapshot) -> bool:
    return any(shown.kind for shown in snapshot.objects.values())


def _accounts(ddl: SchemaChanged, before: Snapshot, now: Snapshot) -> SchemaChanged | None:
    was, found = before.objects.get(ACCOUNTS, ABSENT), now.objects.get(ACCOUNTS, ABSENT)
    if UNKNOWN in (was.definition, found.definition):
        raise UnknownOutcome("the account may not read the tables of mysql that hold the grants")
    return ddl if was.definition == found.definition else None


def _dropped(ddl: SchemaChanged, before: Snapshot, now: Snapshot) -> SchemaChanged | None:
    what = ddl.kind.partition(" ")[2]
    there = [name for name, shown in now.objects.items() if _is(shown, what)]
    if not there:
        return None
    whole = all(now.objects[name].definition != BROKEN for name in there)
    if whole and all(_is(shown, what) == (name in there) for name, shown in before.objects.items()):
        return ddl
    text = with_if_exists(ddl.statement, ddl.source_flavor, sql_mode=ddl.mode)
    return replace(ddl, statement=text)


def _created(ddl: SchemaChanged, before: Snapshot, now: Snapshot, mariadb: bool) -> SchemaChanged | None:
    what = ddl.kind.partition(" ")[2]
    was = any(_is(shown, what) for shown in before.objects.values())
    found = any(_is(shown, what) and shown.definition != BROKEN for shown in now.objects.values())
    if was or not found:
        # Either it does nothing, or it replaces an object that has not changed since.
        return ddl
    if what == "SEQUENCE":
        # MariaDB creates the table first, then its row. Without the row it is useless, but may be logged.
        text = as_replacing(ddl.statement, ddl.source_flavor, sql_mode=ddl.mode)
        return replace(ddl, statement=text)
    if what == "DATABASE" and mariadb:
        # The server creates the folder first, then the file with the character set.
        try:
            text = as_alter_database(ddl.statement, ddl.source_flavor, sql_mode=ddl.mode)
        except NotEditable as error:
            raise UnknownOutcome(
                f"the database exists, possibly without its character set, and {error}"
            ) from error
        return replace(ddl, statement=text, kind="ALTER DATABASE")
    return None


def _renamed(ddl: SchemaChanged, before: Snapshot, now: Snapshot, mariadb: bool) -> SchemaChanged | None:
    """Find out which pairs are done, by the properties that a table keeps when it is renamed."""
    pairs = [
        (quoted(table.db, table.table), quoted(table.renamed_to_db or table.db, table.renamed_to or ""))
        for table in ddl.tables
    ]
    if any(name not in before.objects for pair in pairs for name in pair):
        # The server stores names in lower case.
        pairs = [(old.lower(), new.lower()) for old, new in pairs]
    # The privilege to read ids may have been granted or revoked in between.
    known = all(one.ids or one.engine != "innodb" for each in (before, now) for one in each.objects.values())
    began, found = (
        {name: shown.identity(mariadb=mariadb, by_id=known) for name, shown in each.objects.items()}
        for each in (before, now)
    )
    done = [count for count, state in enumerate(_through(pairs, began)) if state == found]
    places = list(_through(pairs, {name: (name,) if identity else () for name, identity in began.items()}))
    if not done:
        # MariaDB renames a partitioned table one partition after the other.
        for name, shown in now.objects.items():
            if shown.definition == BROKEN:
                raise InconsistentObjects(f"the server cannot open {name}")
        raise InconsistentObjects("the tables match neither the state before nor the state after it")
    sure = not any(identity[:1] == (UNKNOWN,) for identity in found.values())
    if not sure and any(places[count] != places[done[-1]] for count in done):
        raise UnknownOutcome(
            "the tables are identical in definition, and InnoDB's table ids are not readable"
        )
    # If several match, the renamed tables are identical, or nothing was renamed.
    rest = ddl.tables[done[-1] :]
    if not rest:
        return None
    return ddl if len(rest) == len(ddl.tables) else replace(ddl, statement=_rename(rest), tables=rest)


def _through(
    pairs: Iterable[tuple[str, str]], began: Mapping[str, tuple[object, ...]]
) -> Iterator[dict[str, tuple[object, ...]]]:
    """Yield the objects by name before the first pair, after it, and so on."""
    state = dict(began)
    yield dict(state)
    for old, new in pairs:
        if state[old]:
            state[old], state[new] = (), state[old]
        yield dict(state)


def _rename(tables: Iterable[TableChanged]) -> str:
    pairs = (
        f"{quoted(table.db, table.table)} TO "
        f"{quoted(table.renamed_to_db or table.db, table.renamed_to or '')}"
        for table in tables
    )
    return f"RENAME TABLE {', '.join(pairs)}"


def _altered(ddl: SchemaChanged, before: Snapshot, now: Snapshot, mariadb: bool) -> SchemaChanged | None:
    table = ddl.tables[0]
    was, found = before.get(table.db, table.table), now.get(table.db, table.table)
    if len(ddl.tables) > 1:
        return _partition_moved(ddl, before, now)
    names = [
        quoted(table.db, table.table),
        quoted(table.renamed_to_db or table.db, table.renamed_to or table.table),
    ]
    if not before.objects.keys() >= set(names):
        # The server stores names in lower case.
        names = [name.lower() for name in names]
    if table.renamed_to is not None and names[0] != names[1]:
        other = now.get(table.renamed_to_db or table.db, table.renamed_to)
        if BROKEN in (found.definition, other.definition) and was.definition != BROKEN:
            raise InconsistentObjects("the server cannot open the table")
        if bool(found.kind) == bool(was.kind) and not other.kind:
            return ddl
        if found.kind or not other.kind:
            raise InconsistentObjects("both the old and the new table name exist, or neither")
        return None
    if not was.kind:
        return ddl
    if _differs(was, found, before, now):
        return None
    if not _moves_columns(ddl) or was.content == found.content == NO_ROWS:
        return ddl
    return _moved(ddl, was, found, before, mariadb)


def _differs(was: ObjectState, found: ObjectState, before: Snapshot, now: Snapshot) -> bool:
    if was.kind and not found.kind:
        raise InconsistentObjects("the table is missing")
    if BROKEN in (was.definition, found.definition):
        raise InconsistentObjects("the server cannot open the table")
    if before.server != now.server:
        if was.ids and found.ids and not set(was.ids) & set(found.ids):
            return True
        raise UnknownOutcome("definitions cannot be compared: the server's version or settings have changed")
    if UNKNOWN in (was.definition, found.definition):
        raise UnknownOutcome("the account may not see the table's definition")
    return was.definition != found.definition


def _moved(
    ddl: SchemaChanged, was: ObjectState, found: ObjectState, before: Snapshot, mariadb: bool
) -> SchemaChanged | None:
    """Return what is left of an ALTER that may change values and keep the definition."""
    if _other_ids(was, found) or (was.content and found.content and was.content != found.content):
        return None
    if was.created == found.created:
        if was.created and was.created < before.taken:
            return ddl
    elif not mariadb or was.engine != "innodb":
        return None
    # MariaDB's time is that of a file, which crash recovery also changes when it rolls the ALTER back.
    raise UnknownOutcome("the table's definition is the same before and after it")


def _other_ids(was: ObjectState, found: ObjectState) -> bool:
    return bool(was.ids and found.ids) and was.ids != found.ids


def _partition_moved(ddl: SchemaChanged, before: Snapshot, now: Snapshot) -> SchemaChanged | None:
    """Return what is left of EXCHANGE PARTITION, or of MariaDB's CONVERT PARTITION and CONVERT TABLE."""
    one, other = ((before.get(t.db, t.table), now.get(t.db, t.table)) for t in ddl.tables[:2])
    changed = _differs(*one, before, now)
    if bool(other[0].kind) != bool(other[1].kind):
        if not changed:
            raise InconsistentObjects("a table was added or removed, but the partitions are the same")
        return None
    if changed:
        raise InconsistentObjects("the partitions changed, but no table was added or removed")
    if not other[0].kind:
        return ddl
    if not (one[0].ids and one[1].ids and other[0].ids and other[1].ids):
        raise UnknownOutcome("the ids of InnoDB's tables are not known")
    if one[0].ids == one[1].ids and other[0].ids == other[1].ids:
        return ddl
    if _numbers(other[1]) <= _numbers(one[0]) and _numbers(other[0]) <= _numbers(one[1]):
        return None
    raise InconsistentObjects("table and partition match neither the state before nor after the exchange")


def _numbers(shown: ObjectState) -> set[int]:
    return {number for _, number in shown.ids or ()}


def _moves_columns(ddl: SchemaChanged) -> bool:
    """Whether a column gets the name of a renamed or dropped one. Then a repetition would move more. True if unsure."""
    if ddl.kind != "ALTER TABLE":
        return False
    try:
        clauses = clauses_of(ddl.statement, ddl.source_flavor, sql_mode=ddl.mode)
    except (Unparsable, LexError):
        return True
    verbs = ("CHANGE", "RENAME", "DROP")
    names = [
        (c.name.lower(), c.new_name.lower()) for c in clauses if c.object_kind == "COLUMN" and c.verb in verbs
    ]
    return not {old for old, _ in names}.isdisjoint(new for old, new in names if new != old)
