"""What `check` says of the copy with which a log begins: pure findings, and those of real servers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from schemas.errors import TailraceError, UpstreamError
from schemas.tables import TableFilter
from spark_consumer.target.programs.privileges import Privileges, parse_grants
from tailrace.commands.app import app
from tailrace.config.file import load
from tailrace.preflight.finding import Finding, Result
from tailrace.preflight.first_copy import (
    SourceFacts,
    SourceTable,
    TargetTable,
    source_findings,
    target_findings,
)
from tailrace.preflight.gate import check_consumer, check_producer
from tailrace.preflight.grants import upstream_reach

KEYED = SourceTable(("shop", "orders"), "InnoDB", has_key=True)


def _account(rights: str) -> Privileges:
    return Privileges("'a'@'%'", parse_grants([f"GRANT {rights} TO `a`@`%`"]))


GOOD = SourceFacts(
    mariadb=False,
    version=(9, 7),
    account=_account("SELECT, SHOW VIEW, EVENT ON *.*"),
    reach=upstream_reach(TableFilter(["shop.*"]), [KEYED.name]),
    refusal=None,
    tables=[KEYED],
)


def _not_ok(results: list[Result]) -> dict[str, Finding]:
    return {one.code: one for one in results if isinstance(one, Finding) and one.level != "ok"}


def test_nothing_is_said_against_a_server_that_can_be_copied() -> None:
    assert _not_ok(source_findings(GOOD)) == {}


def test_a_right_that_every_producer_needs_is_a_finding_of_the_copy_only_if_it_is_missing() -> None:
    assert not any(one.code == "copy_select" for one in source_findings(GOOD))
    found = _not_ok(source_findings(replace(GOOD, account=_account("SHOW VIEW, EVENT ON *.*"))))
    assert found["copy_select"].level == "block"


def test_what_cannot_be_copied_is_named() -> None:
    tables = [
        replace(KEYED, hidden_parent=("hr", "people")),
        SourceTable(("shop", "numbers"), "InnoDB", has_key=False, is_sequence=True),
    ]
    refusal = UpstreamError("TR212", "no GTIDs", hint="set gtid_mode = ON")
    found = _not_ok(source_findings(replace(GOOD, refusal=refusal, tables=tables)))
    assert {(one.level, one.error) for one in found.values()} == {("block", "TR212")}
    assert (
        "shop.orders: foreign keys change rows together with those of hr.people"
        in found["copy_cascades"].message
    )
    assert "shop.numbers" in found["copy_sequences"].message
    assert 'start = "earliest"' in found["copy"].hint


def test_tables_that_are_locked_are_named_with_the_right_that_this_takes() -> None:
    tables = [
        KEYED,
        *(SourceTable(("shop", f"log{n}"), "InnoDB", has_key=False) for n in range(7)),
        SourceTable(("shop", "visits"), "MyISAM", has_key=True),
    ]
    found = _not_ok(source_findings(replace(GOOD, tables=tables)))
    assert found["copy_locks"].level == "block"
    assert "GRANT LOCK TABLES ON" in found["copy_locks"].hint
    what = found["copy_locked"].message
    assert (
        "shop.log4 (no key) and 2 more: locked for milliseconds; shop.visits (MyISAM): locked until" in what
    )


@pytest.mark.parametrize(
    ("mariadb", "version", "right"),
    [(False, (8, 0, 19), "SELECT"), (False, (8, 4), "SHOW_ROUTINE"), (True, (11, 4), "SHOW CREATE ROUTINE")],
)
def test_each_right_that_only_a_copy_needs(mariadb: bool, version: tuple[int, ...], right: str) -> None:
    facts = replace(GOOD, mariadb=mariadb, version=version, account=_account("SELECT ON `shop`.*"))
    found = _not_ok(source_findings(facts))
    assert found.keys() == {"copy_views", "copy_events", "copy_routines"}
    assert f"GRANT {right} ON *.*" in found["copy_routines"].hint


def test_only_an_empty_table_is_not_in_the_way() -> None:
    empty = TargetTable(("shop", "orders"), ("shop", "orders"), "BASE TABLE", has_rows=False)
    assert _not_ok(target_findings([empty])) == {}
    for other, words in (
        (replace(empty, has_rows=True), "has rows"),
        (replace(empty, kind="VIEW"), "is a VIEW"),
    ):
        finding = _not_ok(target_findings([empty, other]))["copy_target"]
        assert (finding.level, finding.error) == ("block", "TR664")
        assert words in finding.message


@pytest.mark.servers
@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_both_servers_are_looked_at(upstream: Any, downstream: Any, kafka: Any, tmp_path: Path) -> None:
    for server in (upstream, downstream):
        server.execute("DROP DATABASE IF EXISTS fc", "CREATE DATABASE fc")
        server.execute("CREATE TABLE fc.t (id INT PRIMARY KEY)", "CREATE TABLE fc.u (id INT PRIMARY KEY)")
    upstream.execute(
        "CREATE TABLE fc.log (a INT UNIQUE)", "CREATE TABLE fc.old (id INT PRIMARY KEY) ENGINE=MyISAM"
    )
    downstream.execute("INSERT INTO fc.t VALUES (1)", "CREATE TABLE fc.log (a INT UNIQUE)")
    config = tmp_path / "tailrace.toml"
    config.write_text(
        f'[source]\nurl = "{upstream.url("tailrace")}"\nserver-id = 7302\n[kafka]\nprefix = "{tmp_path.name}"\n'
        f'bootstrap-servers = "{kafka.bootstrap}"\n[target]\nurl = "{downstream.url("tailrace")}"\n'
        '[tables]\ninclude = ["fc.*"]\n'
    )
    done = CliRunner().invoke(app, ["check", "--json", "--config", str(config)])
    found = {one["code"]: one for one in json.loads(done.stdout)["findings"]}
    assert (
        "fc.log (no key): locked for milliseconds; fc.old (MyISAM): locked until"
        in found["copy_locked"]["what"]
    )
    assert "fc.t has rows" in found["copy_target"]["what"]
    assert "more" not in found["copy_target"]["what"]
    assert {code: found[code]["level"] for code in ("copy_views", "copy_locks", "log_begins")} == {
        "copy_views": "ok",
        "copy_locks": "ok",
        "log_begins": "ok",
    }
    with pytest.raises(TailraceError, match="TR664"):
        check_consumer(load(config), "main")
    check_producer(load(config))
    if upstream.flavor == "mariadb":
        key = "ADD FOREIGN KEY (parent) REFERENCES other.p (id) ON DELETE CASCADE"
        upstream.execute(
            "CREATE DATABASE other",
            "CREATE TABLE other.p (id INT PRIMARY KEY)",
            f"ALTER TABLE fc.u ADD parent INT, {key}",
        )
        with pytest.raises(TailraceError, match=r"TR212.*fc\.u.*other\.p"):
            check_producer(load(config))
    # Whoever begins without a copy is not told about one.
    config.write_text(config.read_text().replace("server-id", 'start = "current"\nserver-id'))
    check_consumer(load(config), "main")
    check_producer(load(config))
    for server in (upstream, downstream):
        server.execute("DROP DATABASE fc", "DROP DATABASE IF EXISTS other")
