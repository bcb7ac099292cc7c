"""Triggers and events of the downstream, which would write rows that the log brings: none is overlooked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from compose.databases import Database
from schemas.errors import DownstreamError
from schemas.structure import TableStructure
from spark_consumer.apply.applier import Applier
from spark_consumer.apply.tables import channel_tables, position_store
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.route import Route
from spark_consumer.rules.scope import Scope
from spark_consumer.target.tables import TableAltered
from tests.support.applying.apply_steps import apply_rows, open_channel, prepared_rows
from tests.support.epochs.fake_topic import insert, integer, update
from tests.support.names import forget_others, own_name

pytestmark = pytest.mark.servers
Channel = Callable[..., tuple[Applier, ConsumerConfig]]


@pytest.fixture
def db(request: pytest.FixtureRequest, downstream: Database) -> Iterator[str]:
    """A replicated database with tables t and u, and beside it ``<db>_own``, which is not replicated."""
    name = own_name("w_", request, 30)
    downstream.execute(
        f"CREATE DATABASE {name}",
        f"CREATE DATABASE {name}_own",
        *(f"CREATE TABLE {name}.{table} (id INT PRIMARY KEY, v INT)" for table in ("t", "u")),
        f"CREATE TABLE {name}_own.a (id INT, v INT, KEY (id)) ENGINE=InnoDB",
    )
    forget_others(downstream)
    yield name
    # An event is everybody's concern.
    downstream.execute(f"DROP DATABASE {name}", f"DROP DATABASE {name}_own")


@pytest.fixture
def channel(downstream: Database, db: str) -> Channel:
    """Opens a channel that replicates ``<db>``."""
    return partial(open_channel, downstream.url("tailrace"), db, include=(f"{db}.*",))


def _table(db: str, name: str = "t") -> TableStructure:
    return TableStructure(db, name, (integer("id"), integer("v")), ("id",))


def _rows(downstream: Database, table: str) -> list[tuple[Any, ...]]:
    return downstream.execute(f"SELECT * FROM {table} ORDER BY 1")


TRIGGER = "CREATE TRIGGER {d}.tr AFTER INSERT ON {d}.t FOR EACH ROW "
HARM = {
    "into another table": (TRIGGER + "INSERT INTO {d}.u VALUES (NEW.id, 1)", "changes {d}.u"),
    "before": (
        "CREATE TRIGGER {d}.tr BEFORE DELETE ON {d}.t FOR EACH ROW UPDATE LOW_PRIORITY {d}_own.a x JOIN u ON u.id=x.id"
        " SET u.v = 1",
        "changes {d}.u",
    ),
    "in a comment that is run": (TRIGGER + "/*!50000 REPLACE u SET id = 1 */", "changes {d}.u"),
    "through a procedure": (
        "CREATE PROCEDURE {d}_own.p() BEGIN IF 1 THEN DELETE FROM {d}.u; END IF; END",
        TRIGGER + "CALL {d}_own.p()",
        "changes {d}.u, through the procedure {d}_own.p",
    ),
    "through a function": (
        "CREATE FUNCTION {d}.f(i INT) RETURNS INT BEGIN INSERT INTO u VALUES (i, 0); RETURN i; END",
        TRIGGER + "SET @x = f(NEW.id)",
        "changes {d}.u, through the function {d}.f",
    ),
    "through a function in a view that is read": (
        "CREATE FUNCTION {d}_own.f(i INT) RETURNS INT BEGIN INSERT INTO {d}.u VALUES (i, 0); RETURN i; END",
        "CREATE VIEW {d}_own.w AS SELECT {d}_own.f(3) AS x",
        TRIGGER + "SET @x = (SELECT x FROM {d}_own.w)",
        "changes {d}.u",
    ),
    "through a view": (
        "CREATE VIEW {d}_own.w AS SELECT u.id AS n FROM {d}_own.a JOIN {d}.u ON a.id = u.id",
        TRIGGER + "UPDATE {d}_own.w SET n = 3",
        "changes {d}.u, through the view {d}_own.w",
    ),
    "through another trigger": (
        "CREATE TRIGGER {d}_own.next BEFORE INSERT ON {d}_own.a FOR EACH ROW DELETE FROM {d}.u WHERE id = NEW.id",
        TRIGGER + "INSERT INTO {d}_own.a VALUES (NEW.id, 1)",
        "changes {d}.u, through the trigger {d}_own.next",
    ),
    "through a foreign key": (
        "CREATE TABLE {d}_own.parent (id INT PRIMARY KEY)",
        "ALTER TABLE {d}.u ADD FOREIGN KEY (v) REFERENCES {d}_own.parent (id) ON DELETE SET NULL",
        TRIGGER + "DELETE FROM {d}_own.parent WHERE id = NEW.id",
        "changes {d}.u, through foreign keys",
    ),
    "with a variable of the session": (TRIGGER + "SET foreign_key_checks = 1", "foreign_key_checks"),
    "with what nobody can read": (
        "CREATE PROCEDURE {d}.p() BEGIN PREPARE s FROM 'DELETE FROM u'; EXECUTE s; END",
        TRIGGER + "CALL p()",
        "runs dynamic SQL",
    ),
    "from an event": (
        "CREATE EVENT {d}_own.ev ON SCHEDULE EVERY 1 HOUR STARTS '2037-01-01' DO UPDATE {d}.u SET v = v + 1",
        "event {d}_own.ev may change replicated rows: it changes {d}.u",
    ),
    "from an event with SQL of its own": (
        "CREATE EVENT {d}.ev ON SCHEDULE EVERY 1 HOUR STARTS '2037-01-01' DO BEGIN PREPARE s FROM 'SELECT 1'; END",
        "runs dynamic SQL",
    ),
    "on a child that cascades": (
        "ALTER TABLE {d}.u ADD FOREIGN KEY (v) REFERENCES {d}.t (id) ON DELETE CASCADE",
        "CREATE TABLE {d}.w (id INT PRIMARY KEY)",
        "CREATE TRIGGER {d}.tr AFTER DELETE ON {d}.u FOR EACH ROW DELETE FROM w WHERE id = OLD.id",
        "trigger {d}.tr on {d}.u may change replicated rows: it changes {d}.w",
    ),
}


@pytest.mark.parametrize("case", HARM)
def test_a_program_that_changes_replicated_rows_stops_before_the_first_row(
    downstream: Database, db: str, channel: Channel, case: str
) -> None:
    *setup, wanted = (text.replace("{d}", db) for text in HARM[case])
    downstream.execute(*setup)
    applier, config = channel()
    with pytest.raises(DownstreamError, match="TR657") as error:
        apply_rows(applier, config, insert(_table(db), {"id": 1, "v": 1}))
    assert wanted in str(error.value)
    assert any(word in error.value.hint for word in ("DROP TRIGGER", "DISABLE"))
    # Only a table can be left out.
    assert ("[tables] exclude" in error.value.hint) == ("changes" in wanted)
    assert _rows(downstream, f"{db}.t") == _rows(downstream, f"{db}.u") == []
    assert applier.position.epoch == -1


HARMLESS = [
    TRIGGER + "INSERT INTO {d}_own.a SELECT NEW.id, COUNT(*) FROM u JOIN {d}.t ON t.id = u.id",
    TRIGGER
    + "BEGIN DECLARE n INT DEFAULT 1; IF NEW.id < n THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'low';"
    " END IF; SET n = 2, @last = NEW.id; SELECT MAX(v) INTO n FROM u FOR UPDATE; END",
    "CREATE EVENT {d}.ev ON SCHEDULE EVERY 1 HOUR STARTS '2037-01-01' DO DELETE FROM {d}_own.a WHERE id IN (SELECT id"
    " FROM u)",
    "CREATE EVENT {d}.ev2 ON SCHEDULE EVERY 1 HOUR STARTS '2037-01-01' DISABLE DO DELETE FROM u",
    "CREATE EVENT {d}.ev3 ON SCHEDULE EVERY 1 HOUR STARTS '2037-01-01' DISABLE ON SLAVE DO DELETE FROM u",
    "CREATE PROCEDURE {d}.nobody_calls() DELETE FROM u",
]


def test_programs_that_change_none_are_let_be(downstream: Database, db: str, channel: Channel) -> None:
    downstream.execute(
        *(text.replace("{d}", db).replace(".tr ", f".tr{n} ") for n, text in enumerate(HARMLESS))
    )
    applier, config = channel()
    apply_rows(applier, config, insert(_table(db), {"id": 1, "v": 1}))
    assert _rows(downstream, f"{db}_own.a") == [(1, 0)]


def test_what_comes_while_the_channel_runs_is_seen(downstream: Database, db: str, channel: Channel) -> None:
    applier, config = channel()
    t = _table(db)
    apply_rows(applier, config, insert(t, {"id": 1, "v": 1}))
    # Between the plan and the transaction.
    made = prepared_rows(applier, config, update(t, {"id": 1, "v": 1}, {"id": 1, "v": 2}))
    trigger = TRIGGER.replace("{d}", db).replace("INSERT", "UPDATE")
    downstream.execute(trigger + f"INSERT INTO {db}_own.a VALUES (1, 1)")
    with pytest.raises(TableAltered):
        applier.apply(made)
    apply_rows(applier, config, update(t, {"id": 1, "v": 1}, {"id": 1, "v": 2}))
    # What a trigger calls, and an event, have no lock that keeps them as they were.
    downstream.execute(
        f"DROP TRIGGER {db}.tr", f"CREATE PROCEDURE {db}.p() SET @x = 1", trigger + f"CALL {db}.p()"
    )
    apply_rows(applier, config, update(t, {"id": 1, "v": 2}, {"id": 1, "v": 3}))
    made = prepared_rows(applier, config, update(t, {"id": 1, "v": 3}, {"id": 1, "v": 4}))
    downstream.execute(f"DROP PROCEDURE {db}.p", f"CREATE PROCEDURE {db}.p() DELETE FROM u")
    with pytest.raises(DownstreamError, match="TR657"):
        applier.apply(made)
    downstream.execute(
        f"DROP TRIGGER {db}.tr",
        f"CREATE EVENT {db}.ev ON SCHEDULE EVERY 1 HOUR STARTS '2037-01-01' DISABLE DO DELETE FROM {db}.u",
    )
    apply_rows(applier, config, update(t, {"id": 1, "v": 3}, {"id": 1, "v": 4}))
    made = prepared_rows(applier, config, update(t, {"id": 1, "v": 4}, {"id": 1, "v": 5}))
    downstream.execute(f"ALTER EVENT {db}.ev ENABLE")
    with pytest.raises(DownstreamError, match="TR657"):
        applier.apply(made)
    assert _rows(downstream, f"{db}.t") == [(1, 4)]


def test_the_downstreams_names_count(downstream: Database, db: str, channel: Channel) -> None:
    routes = (Route("up", db), Route("side", f"{db}_own", "b", "a"))
    downstream.execute(TRIGGER.replace("{d}", db) + f"INSERT INTO {db}_own.a VALUES (NEW.id, 1)")
    rules: dict[str, Any] = {"include": ("up.*", "side.*"), "exclude": ("up.u",)}
    applier, config = channel(routes=routes, **rules)
    with pytest.raises(DownstreamError, match=f"TR657.* changes {db}_own.a"):
        apply_rows(applier, config, insert(_table("up"), {"id": 1, "v": 1}))
    # What is left out by its name upstream is nobody's here.
    downstream.execute(
        f"DROP TRIGGER {db}.tr", TRIGGER.replace("{d}", db) + "INSERT INTO u VALUES (NEW.id, 1)"
    )
    apply_rows(applier, config, insert(_table("up"), {"id": 1, "v": 1}))
    assert _rows(downstream, f"{db}.u") == [(1, 1)]


def test_the_tables_of_another_channel_count(downstream: Database, db: str, channel: Channel) -> None:
    downstream.execute(TRIGGER.replace("{d}", db) + f"INSERT INTO {db}_own.a VALUES (NEW.id, 1)")
    other, config = open_channel(downstream.url("tailrace"), f"{db}_2")
    position_store.write_scope(other.session, config.key, Scope((f"{db}_own.*",)).to_json())
    applier, config = channel()
    with pytest.raises(DownstreamError, match=f"TR657.* changes {db}_own.a"):
        apply_rows(applier, config, insert(_table(db), {"id": 1, "v": 1}))
    channel_tables.forget(other.session, ChannelKey("p", f"{db}_2"))
    apply_rows(applier, config, insert(_table(db), {"id": 1, "v": 1}))


def test_programs_that_the_account_cannot_see_stop_it(
    downstream: Database, db: str, channel: Channel
) -> None:
    rights = f"SELECT, INSERT, UPDATE, DELETE ON {db}.* TO blind@'%'"
    downstream.execute(
        "DROP USER IF EXISTS blind@'%'",
        "CREATE USER blind@'%' IDENTIFIED BY 'b'",
        f"GRANT {rights}",
        "GRANT ALL ON tailrace.* TO blind@'%'",
        TRIGGER.replace("{d}", db) + "INSERT INTO u VALUES (NEW.id, 1)",
    )
    url = downstream.url("blind:b")

    def attempt() -> None:
        applier, config = open_channel(url, db, include=(f"{db}.*",))
        apply_rows(applier, config, insert(_table(db), {"id": 1, "v": 1}))

    with pytest.raises(DownstreamError, match=r"TR658.*triggers.*TRIGGER and EVENT") as error:
        attempt()
    assert f"GRANT TRIGGER ON `{db}`.* TO 'blind'@'%'" in error.value.hint
    downstream.execute(f"GRANT EVENT ON {db}.* TO blind@'%'", f"GRANT TRIGGER ON {db}.* TO blind@'%'")
    with pytest.raises(DownstreamError, match="TR657"):
        attempt()
    downstream.execute(f"DROP TRIGGER {db}.tr")
    attempt()
    assert (_rows(downstream, f"{db}.t"), _rows(downstream, f"{db}.u")) == ([(1, 1)], [])
    downstream.execute("DROP USER blind@'%'")


def test_a_trigger_on_our_own_tables_stops(downstream: Database, db: str, channel: Channel) -> None:
    applier, config = channel()
    downstream.execute(
        "CREATE TRIGGER tailrace.theirs BEFORE UPDATE ON tailrace.relay_log_info FOR EACH ROW SET NEW.epoch = 7"
    )
    try:
        with pytest.raises(DownstreamError, match=r"TR657.*tailrace\.theirs"):
            apply_rows(applier, config, insert(_table(db), {"id": 1, "v": 1}))
    finally:
        downstream.execute("DROP TRIGGER tailrace.theirs")
