"""What an account may do, told from SHOW GRANTS of both servers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from spark_consumer.target.programs.privileges import Privileges, account_of, parse_grants, read_privileges
from spark_consumer.target.session import Session


def _of(*lines: str, plain: bool = False) -> Privileges:
    return Privileges("", parse_grants(lines), plain_names=plain)


def test_names_of_the_same_right() -> None:
    line = "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `t`@`%` IDENTIFIED BY PASSWORD '*1'"
    for right, has in (("SELECT", True), ("REPLICATION CLIENT", True), ("INSERT", False)):
        assert _of(line).everywhere(right) is has


def test_all_is_all_where_it_is_given() -> None:
    assert _of("GRANT ALL PRIVILEGES ON *.* TO `x`@`%` WITH GRANT OPTION").everywhere("BINLOG ADMIN")
    some = _of("GRANT ALL PRIVILEGES ON `a`.* TO `x`@`%`")
    assert not some.everywhere("SELECT")
    assert some.on_table("TRIGGER", "a", "t")
    assert not some.on_schema("SET_ANY_DEFINER", "a")
    assert not some.on_schema("BINLOG REPLAY", "a")


def test_columns_are_not_the_table() -> None:
    some = _of("GRANT SELECT (`a`, `b ON c`), INSERT, TRIGGER ON `d`.`t` TO `x`@`%`")
    assert not some.on_table("SELECT", "d", "t")
    assert some.on_table("INSERT", "d", "t")
    assert some.on_table("TRIGGER", "d", "t")
    assert not some.on_table("INSERT", "d", "u")
    assert not some.on_schema("INSERT", "d")


def test_of_patterns_the_most_exact_one_holds_and_no_other() -> None:
    some = _of("GRANT SELECT ON `sh%`.* TO `x`@`%`", "GRANT INSERT ON `shop`.* TO `x`@`%`")
    assert some.on_schema("INSERT", "shop")
    assert not some.on_schema("SELECT", "shop")
    assert some.on_schema("SELECT", "shed")
    both = _of("GRANT SELECT ON `sh%`.* TO `x`@`%`", "GRANT INSERT ON `shop`.* TO `a_role`")
    assert both.on_schema("SELECT", "shop")
    escaped = _of(r"GRANT SELECT ON `a\_b`.* TO `x`@`%`")
    assert (escaped.on_schema("SELECT", "a_b"), escaped.on_schema("SELECT", "axb")) == (True, False)
    assert not _of("GRANT SELECT ON `a_b`.* TO `x`@`%`", plain=True).on_schema("SELECT", "axb")


def test_what_is_taken_back_in_part_is_missing_there() -> None:
    some = _of("GRANT SELECT, DELETE ON *.* TO `x`@`%`", "REVOKE DELETE ON `d`.* FROM `x`@`%`", plain=True)
    assert not some.everywhere("DELETE")
    assert (some.on_schema("DELETE", "d"), some.on_schema("DELETE", "e")) == (False, True)
    # Nobody writes to the server's own.
    own = _of("GRANT DELETE ON *.* TO `x`@`%`", "REVOKE DELETE ON `mysql`.* FROM `x`@`%`", plain=True)
    assert own.everywhere("DELETE")


def _session(user: str, role: str | None, *grants: str) -> Session:
    answers: dict[str, list[tuple[Any, ...]]] = {
        "SELECT CURRENT_USER()": [(user,)],
        "SELECT CURRENT_ROLE()": [(role,)],
        "SHOW GRANTS": [(grant,) for grant in grants],
        "SHOW GLOBAL VARIABLES LIKE 'partial_revokes'": [],
    }
    return cast(Session, SimpleNamespace(rows=answers.__getitem__))


def test_roles_that_are_not_in_force_are_named() -> None:
    mysql = ("GRANT USAGE ON *.* TO `a`@`%`", "GRANT `r1`@`%`,`r2`@`%` TO `a`@`%`")
    assert read_privileges(_session("a@%", "NONE", *mysql)).idle_roles == ("`r1`@`%`", "`r2`@`%`")
    assert read_privileges(_session("a@%", "`r1`@`%`", *mysql)).idle_roles == ("`r2`@`%`",)
    mariadb = ("GRANT `r1` TO `a`@`%`", "GRANT USAGE ON *.* TO `a`@`%`", "GRANT SELECT ON *.* TO `r1`")
    found = read_privileges(_session("a@%", "r1", *mariadb, "GRANT `r2` TO `r1`"))
    assert found.idle_roles == ()
    assert found.everywhere("SELECT")
    assert read_privileges(_session("a@%", None, *mariadb[:2])).idle_roles == ("`r1`",)


def test_an_account_is_named_as_grant_wants_it() -> None:
    assert account_of("o'hara@h%") == "'o''hara'@'h%'"
    assert account_of("a@b@localhost") == "'a@b'@'localhost'"
