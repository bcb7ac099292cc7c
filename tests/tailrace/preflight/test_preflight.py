"""Findings are pure: facts in, findings out."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.ddl.lexer import Dialect
from schemas.tables import TableFilter
from spark_consumer.apply.side_writes import Program, SideWrite
from spark_consumer.rules.route import Route, Router
from spark_consumer.rules.rules import Rules
from spark_consumer.target.programs.privileges import Privileges, parse_grants
from tailrace.config.addresses import targets
from tailrace.config.model import Channel, Config, Target
from tailrace.preflight.agreement import NO_FEATURES, ServerFeatures, agreement_findings
from tailrace.preflight.downstream import DownstreamFacts, Nontransactional, Programs, downstream_findings
from tailrace.preflight.finding import Finding, NotChecked, Preflight, Result
from tailrace.preflight.grants import ReplicatedObjects, downstream_reach, upstream_reach
from tailrace.preflight.kafka import KafkaFacts, TopicFacts, kafka_findings
from tailrace.preflight.local import folder_findings, relay_findings
from tailrace.preflight.upstream import UpstreamFacts, upstream_findings
from tests.support.paths import CHECKOUT

ALL = ReplicatedObjects(("tailrace",))


def _account(*lines: str, idle: tuple[str, ...] = ()) -> Privileges:
    return Privileges("'a'@'%'", parse_grants(lines), idle)


GOOD = UpstreamFacts(
    mariadb=False,
    version="9.7.0",
    variables={
        "log_bin": "ON",
        "binlog_format": "ROW",
        "binlog_row_image": "FULL",
        "binlog_row_metadata": "FULL",
        "binlog_checksum": "CRC32",
        "gtid_mode": "ON",
        "binlog_expire_logs_seconds": "2592000",
        "server_id": "1",
    },
    account=_account("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `r`@`%`"),
    reach=ALL,
    our_server_id=7,
    replica_ids=[],
    keyless_tables=0,
    non_transactional_tables=0,
)
BOTH = {
    "lower_case_table_names": "0",
    "default_storage_engine": "InnoDB",
    "explicit_defaults_for_timestamp": "ON",
    "innodb_strict_mode": "ON",
    "innodb_default_row_format": "dynamic",
    "innodb_page_size": "16384",
    "system_time_zone": "UTC",
    "time_zone": "SYSTEM",
    "init_connect": "",
}
KIT = ServerFeatures(
    True,
    frozenset({"utf8mb3_general_ci", "latin1_swedish_ci"}),
    frozenset({"InnoDB"}),
    {"latin1_swedish_ci": "a.t"},
    {"InnoDB": "a.t"},
)
DOWN = DownstreamFacts(
    mariadb=False,
    version="9.7.0",
    variables={
        "log_bin": "ON",
        "gtid_mode": "ON",
        "max_allowed_packet": str(64 << 20),
        **BOTH,
    },
    account=_account("GRANT ALL PRIVILEGES ON *.* TO `a`@`%`"),
    reach=ALL,
    upstream_mariadb=False,
    upstream_variables=BOTH | {"max_allowed_packet": str(32 << 20)},
    features=KIT,
    upstream_features=KIT,
    programs=Programs(),
    nontransactional=(),
)


def _named(results: list[Result], code: str) -> Result:
    return next(result for result in results if result.code == code)


def _levels(results: list[Result]) -> set[str]:
    return {result.level if isinstance(result, Finding) else "not checked" for result in results}


def test_a_good_upstream_has_only_good_findings() -> None:
    assert _levels(upstream_findings(GOOD)) == {"ok"}


@pytest.mark.parametrize(
    ("name", "value", "level"),
    [
        ("log_bin", "OFF", "block"),
        ("binlog_format", "MIXED", "block"),
        ("binlog_row_image", "MINIMAL", "warn"),
        ("binlog_row_metadata", "MINIMAL", "warn"),
        ("binlog_row_metadata", "NO_LOG", "warn"),
        ("gtid_mode", "OFF", "warn"),
        ("binlog_checksum", "NONE", "warn"),
    ],
)
def test_an_upstream_setting_is_named_with_its_remedy(name: str, value: str, level: str) -> None:
    facts = replace(GOOD, variables={**GOOD.variables, name: value})
    finding = _named(upstream_findings(facts), name)
    assert isinstance(finding, Finding)
    assert finding.level == level
    assert value in finding.message or name == "log_bin"
    assert name in finding.hint


def test_short_retention_is_a_warning() -> None:
    facts = replace(GOOD, variables={**GOOD.variables, "binlog_expire_logs_seconds": "3600"})
    finding = _named(upstream_findings(facts), "retention")
    assert isinstance(finding, Finding)
    assert (finding.level, "1 hours" in finding.message) == ("warn", True)


def test_a_server_id_that_is_taken() -> None:
    own = _named(upstream_findings(replace(GOOD, our_server_id=1)), "server-id")
    other = _named(upstream_findings(replace(GOOD, replica_ids=[7])), "server-id")
    unknown = _named(upstream_findings(replace(GOOD, replica_ids=None)), "server-id")
    assert isinstance(own, Finding)
    assert isinstance(other, Finding)
    assert (own.level, own.error, other.level) == ("block", "TR210", "warn")
    assert isinstance(unknown, NotChecked)


def test_missing_privileges_block() -> None:
    without = replace(GOOD, account=_account("GRANT SELECT ON *.* TO `r`@`%`"))
    finding = _named(upstream_findings(without), "privileges")
    assert isinstance(finding, Finding)
    assert (finding.level, finding.error) == ("block", "TR202")
    assert finding.hint == "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'a'@'%'"
    # A role that gives them is of use only where sessions begin with it.
    idle = replace(GOOD, account=_account("GRANT SELECT ON *.* TO `r`@`%`", idle=("`both`@`%`",)))
    finding = _named(upstream_findings(idle), "privileges")
    assert isinstance(finding, Finding)
    assert finding.level == "block"
    assert "SET DEFAULT ROLE `both`@`%` TO 'a'@'%'" in finding.hint


def test_a_good_downstream() -> None:
    assert _levels(downstream_findings(DOWN)) == {"ok"}


def _documented_rights() -> list[str]:
    """Those of the downstream's account on MySQL."""
    text = (CHECKOUT / "docs/SETUP.md").read_text()
    (names,) = re.findall(r"GRANT (SELECT, INSERT.+?)\s+ON \*\.\*", text, re.DOTALL)
    return [" ".join(name.split()) for name in names.split(",")]


DOCUMENTED = _documented_rights()


def _rights(facts: DownstreamFacts) -> dict[str, Finding]:
    codes = (
        "privileges",
        "triggers",
        "events",
        "programs",
        "views",
        "routines",
        "temporary_tables",
        "definers",
    )
    found = [_named(downstream_findings(facts), code) for code in (*codes, "monitor", "session", "ledger")]
    assert all(isinstance(one, Finding) for one in found)
    return {one.code: one for one in found if isinstance(one, Finding) and one.level != "ok"}


@pytest.mark.parametrize("dropped", DOCUMENTED)
def test_each_right_is_missed(dropped: str) -> None:
    left = [right for right in DOCUMENTED if right != dropped]
    found = _rights(replace(DOWN, account=_account(f"GRANT {', '.join(left)} ON *.* TO `a`@`%`")))
    assert found
    assert all(dropped in one.message for one in found.values())
    assert all(one.hint == f"GRANT {dropped} ON *.* TO 'a'@'%'" for one in found.values())
    assert _rights(replace(DOWN, account=_account(f"GRANT {', '.join(DOCUMENTED)} ON *.* TO `a`@`%`"))) == {}


def test_rights_on_single_databases_are_held_against_what_is_replicated() -> None:
    servers = "GRANT SET_ANY_DEFINER, ALLOW_NONEXISTENT_DEFINER, SYSTEM_USER, REPLICATION CLIENT,"
    servers += " REPLICATION_APPLIER, SESSION_VARIABLES_ADMIN ON *.* TO `a`@`%`"
    rules = Rules(TableFilter(["shop.*", "hr.staff"]), router=Router((Route("shop", "copy"),)))
    reach = downstream_reach([rules], [("shop", "t"), ("hr", "staff"), ("other", "t")])
    assert reach == ReplicatedObjects(("tailrace", "copy"), (("hr", "staff"),), open=False)

    def lines(*places: str) -> tuple[str, ...]:
        return (servers, *(f"GRANT ALL PRIVILEGES ON {place} TO `a`@`%`" for place in places))

    # MariaDB lets everybody do everything in `test`.
    public = "GRANT SELECT, INSERT, UPDATE, DELETE ON `test`.* TO PUBLIC"
    nothing = _rights(replace(DOWN, account=_account(servers, public), reach=reach))
    assert nothing["privileges"].hint.endswith("ON *.* TO 'a'@'%'")
    some = _rights(replace(DOWN, account=_account(*lines("`copy`.*", "`hr`.*")), reach=reach))
    assert some["triggers"].hint == "GRANT TRIGGER ON `tailrace`.* TO 'a'@'%'"
    all_of_it = _rights(
        replace(DOWN, account=_account(*lines("`co_y`.*", "`hr`.*", "`tailrace`.*")), reach=reach)
    )
    assert {code: one.level for code, one in all_of_it.items()} == {"events": "warn"}
    later = replace(reach, open=True)
    found = _rights(
        replace(DOWN, account=_account(*lines("`copy`.*", "`hr`.*", "`tailrace`.*")), reach=later)
    )
    assert {one.level for one in found.values()} == {"warn"}
    assert "created later" in found["privileges"].message


def test_what_is_replicated_as_far_as_the_patterns_tell() -> None:
    tables = [("a", "t"), ("a", "u"), ("b1", "t"), ("mysql", "user")]
    assert upstream_reach(TableFilter(), tables) == ReplicatedObjects(
        (), (("a", "t"), ("a", "u"), ("b1", "t")), open=True
    )
    assert upstream_reach(TableFilter(["a", "b?.*"]), tables) == ReplicatedObjects(
        ("a",), (("b1", "t"),), open=True
    )
    assert upstream_reach(TableFilter(["a.t*"], ["a.u"]), tables) == ReplicatedObjects(("a",), (), open=False)
    assert upstream_reach(TableFilter(["a.t"]), ()) == ReplicatedObjects((), (("a", "t"),), open=False)


def test_tables_without_transactions_are_named() -> None:
    keyed, other = Nontransactional("d.b", "MEMORY", True), Nontransactional("d.a", "MyISAM", True)
    finding = _named(downstream_findings(replace(DOWN, nontransactional=[keyed, other])), "nontransactional")
    assert isinstance(finding, Finding)
    assert finding.level == "warn"
    assert "d.a and 1 more (MyISAM)" in finding.message
    assert "MEMORY is empty after a restart" in finding.message
    none = replace(keyed, keyed=False)
    finding = _named(downstream_findings(replace(DOWN, nontransactional=[other, none])), "nontransactional")
    assert isinstance(finding, Finding)
    assert finding.level == "block"
    assert "ALTER TABLE d.b ENGINE=InnoDB" in finding.hint


def test_programs_that_write_beside_us_block() -> None:
    program = Program("trigger", "d", "tr", "", Dialect("mysql"), "t")
    beside = SideWrite(program, "it changes d.u", "DROP TRIGGER `d`.`tr` on the downstream")
    found = downstream_findings(replace(DOWN, programs=Programs([beside], [("d.b", "d.t", ("v",))])))
    two = [one for one in found if one.code == "side_writes" and isinstance(one, Finding)]
    assert [one.level for one in two] == ["block", "block"]
    assert "trigger d.tr on d.t may change replicated rows" in two[0].message
    assert "may set v" in two[1].message
    assert isinstance(_named(downstream_findings(replace(DOWN, programs=None)), "side_writes"), NotChecked)


def test_a_downstream_without_gtids_is_warned_of_intent_rows() -> None:
    facts = replace(DOWN, variables={**DOWN.variables, "gtid_mode": "OFF"})
    finding = _named(downstream_findings(facts), "ledger")
    assert isinstance(finding, Finding)
    assert finding.level == "warn"


def test_ids_of_tables_are_needed_where_gtids_prove_nothing() -> None:
    account = _account("GRANT SELECT ON *.* TO `a`@`%`")
    there = replace(DOWN, account=account)
    assert all(one.code != "identities" for one in downstream_findings(there))
    for facts in (
        replace(there, variables={**DOWN.variables, "gtid_mode": "OFF"}),
        replace(there, mariadb=True, version="11.4.5-MariaDB"),
    ):
        finding = _named(downstream_findings(facts), "identities")
        assert isinstance(finding, Finding)
        assert (finding.level, finding.hint) == ("warn", "GRANT PROCESS ON *.* TO 'a'@'%'")


def test_an_account_that_may_not_set_gtids() -> None:
    rights = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES"
    facts = replace(DOWN, account=_account(f"GRANT {rights} ON *.* TO `a`@`%`"))
    finding = _named(downstream_findings(facts), "ledger")
    assert isinstance(finding, Finding)
    assert "REPLICATION_APPLIER" in finding.hint


def test_other_flavor_and_other_letters_are_warnings() -> None:
    folding = {**DOWN.variables, "lower_case_table_names": "1"}
    facts = replace(DOWN, upstream_mariadb=True, variables=folding, upstream_variables=BOTH)
    results = downstream_findings(facts)
    assert {r.code for r in results if isinstance(r, Finding) and r.level == "warn"} == {
        "flavor",
        "lower_case_table_names",
    }


@pytest.mark.parametrize(
    ("theirs", "ours", "code", "level"),
    [
        ({"default_storage_engine": "MyISAM"}, {}, "storage_engine", "warn"),
        ({}, {"default_storage_engine": "MyISAM"}, "storage_engine", "warn"),
        ({}, {"enforce_storage_engine": "Aria"}, "storage_engine", "block"),
        ({}, {"enforce_storage_engine": "InnoDB"}, "storage_engine", "ok"),
        ({}, {"disabled_storage_engines": "MyISAM,InnoDB"}, "storage_engine", "block"),
        ({}, {"explicit_defaults_for_timestamp": "OFF"}, "explicit_defaults_for_timestamp", "warn"),
        ({"innodb_strict_mode": "OFF"}, {}, "innodb_strict_mode", "warn"),
        ({"time_zone": "Europe/Berlin"}, {}, "time_zones", "ok"),
        ({"system_time_zone": "CET"}, {}, "system_time_zone", "warn"),
        ({"system_time_zone": "CET", "time_zone": "+00:00"}, {}, "system_time_zone", "ok"),
        ({"system_time_zone": "Etc/UTC"}, {}, "system_time_zone", "ok"),
        ({}, {"init_connect": "SET sql_mode = ''"}, "init_connect", "warn"),
        ({}, {"init_connect": "SET sql_log_bin = 0"}, "init_connect", "block"),
        ({"max_allowed_packet": str(64 << 20)}, {}, "packet_of_both", "ok"),
        ({"max_allowed_packet": str(65 << 20)}, {}, "packet_of_both", "warn"),
        ({}, {"binlog_format": "STATEMENT"}, "binlog_format", "block"),
        ({}, {"binlog_format": "STATEMENT", "log_bin": "OFF"}, "binlog_format", "ok"),
        ({"innodb_page_size": "65536"}, {}, "innodb_page_size", "warn"),
    ],
)
def test_what_both_servers_must_agree_on(
    theirs: dict[str, str], ours: dict[str, str], code: str, level: str
) -> None:
    upstream, downstream = BOTH | {"max_allowed_packet": str(32 << 20)} | theirs, DOWN.variables | ours
    finding = _named(agreement_findings(upstream, downstream, KIT, KIT), code)
    assert isinstance(finding, Finding)
    assert finding.level == level
    assert (level == "ok") == (not finding.hint)


def test_what_the_upstreams_tables_need_and_the_downstream_lacks() -> None:
    used = {"utf8_general_ci": "a.t", "latin1_swedish_ci": "a.u", "utf8mb4_0900_ai_ci": "a.v"}
    poor = replace(KIT, zones=False, collations=KIT.collations, engines=frozenset({"InnoDB"}))
    upstream = replace(KIT, used_collations=used, used_engines={"InnoDB": "a.t", "Aria": "a.u"})
    found = agreement_findings(BOTH, DOWN.variables, upstream, poor)
    levels = {r.code: r.level for r in found if isinstance(r, Finding) and r.level != "ok"}
    assert levels == {"collations": "block", "engines": "warn", "time_zones": "warn"}
    finding = _named(found, "collations")
    assert isinstance(finding, Finding)
    assert "does not have the collation utf8mb4_0900_ai_ci of a.v" in finding.message
    named = agreement_findings(BOTH | {"time_zone": "Asia/Tokyo"}, DOWN.variables, upstream, poor)
    zones = _named(named, "time_zones")
    assert isinstance(zones, Finding)
    assert (zones.level, "Asia/Tokyo" in zones.message) == ("block", True)
    unknown = agreement_findings(BOTH, DOWN.variables, NO_FEATURES, NO_FEATURES)
    assert all(
        isinstance(_named(unknown, code), NotChecked) for code in ("collations", "engines", "time_zones")
    )


def test_each_target_is_looked_at_once() -> None:
    def target(url: str) -> Channel:
        return Channel(target=Target(url=url))

    channels = {"a": target("mysql://a"), "b": target("parquet:/b"), "c": target("mysql://x"), "d": Channel()}
    both = Config(target=Target(url="mysql://x"), channel=channels)
    assert [one.target and one.target.url for one in targets(both)] == [
        "mysql://x",
        "mysql://a",
        "parquet:/b",
    ]
    own = Config(channel={"a": target("mysql://a")})
    assert [one.target and one.target.url for one in targets(own)] == ["mysql://a"]
    assert targets(Config())[0].target is None


@pytest.mark.parametrize(
    ("upstream", "downstream", "together", "level"),
    [("0", "1", 0, "warn"), ("0", "2", 3, "block"), ("1", "0", None, "ok"), ("0", "0", 3, "ok")],
)
def test_names_that_fall_together(upstream: str, downstream: str, together: int | None, level: str) -> None:
    name = "lower_case_table_names"
    facts = replace(
        DOWN,
        variables={**DOWN.variables, name: downstream},
        upstream_variables={name: upstream},
        only_cases_differ=together,
    )
    finding = _named(downstream_findings(facts), name)
    assert isinstance(finding, Finding)
    assert finding.level == level


def _kafka(**changes: object) -> KafkaFacts:
    kept = {"retention.ms": "-1"}
    topics = {"p.rows": TopicFacts(4, 3, kept), "p.epochs": TopicFacts(1, 3, kept)}
    return replace(KafkaFacts(3, {"transaction.max.timeout.ms": "900000"}, topics, "p", 4), **changes)  # type: ignore[arg-type]


def test_a_good_kafka() -> None:
    assert _levels(kafka_findings(_kafka())) == {"ok"}


def test_kafka_limits_partitions_and_retention() -> None:
    short = {"retention.ms": "3600000"}
    topics = {"p.rows": TopicFacts(2, 1, short), "p.epochs": TopicFacts(1, 1, None)}
    results = kafka_findings(_kafka(broker_settings={"transaction.max.timeout.ms": "60000"}, topics=topics))
    levels = {r.code: r.level if isinstance(r, Finding) else "not checked" for r in results}
    assert levels["transaction.max.timeout.ms"] == "block"
    partitions = _named(results, "partitions")
    assert isinstance(partitions, Finding)
    assert (partitions.level, partitions.error) == ("block", "TR509")
    assert levels["rows.retention"] == "warn"
    assert levels["epochs.retention"] == "not checked"
    assert levels["replicas"] == "warn"


def test_a_relay_folder_that_does_not_exist_yet_is_fine(tmp_path: Path) -> None:
    assert _named(relay_findings(tmp_path / "a" / "b"), "writable") == Finding(
        "ok", "relay", "writable", f"{tmp_path}/a/b can be written"
    )


def test_a_relay_folder_that_is_a_file_blocks(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    finding = _named(relay_findings(tmp_path / "file"), "writable")
    assert isinstance(finding, Finding)
    assert (finding.level, finding.error) == ("block", "TR302")
    folder = _named(folder_findings(tmp_path / "file"), "writable")
    assert isinstance(folder, Finding)
    assert (folder.level, folder.error, folder.another_start) == ("block", "TR680", True)


def test_only_blocking_findings_block() -> None:
    warn, block = (Finding(level, "kafka", "x", "y") for level in ("warn", "block"))
    unknown = NotChecked("kafka", "x", "y")
    assert not Preflight((warn, unknown)).blocked
    assert Preflight((warn, block)).blocked
