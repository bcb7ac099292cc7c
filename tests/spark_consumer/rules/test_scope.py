"""What a channel may read and write, told to other pipelines, and who shares a table with whom."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.route import Route, fits
from spark_consumer.rules.scope import Scope, common, meet, meetings
from tailrace.other_pipelines import OtherChannel, channels_feeding
from tailrace.preflight.channels import ChannelFacts, channel_findings
from tailrace.preflight.finding import Finding, NotChecked

SHOP = Scope(include=("shop.*",), exclude=("shop.tmp_*",))
MOVED = Scope(routes=(Route("shop", "copy"), Route("a?", "one", "t_*", "all"), Route("b", "two", "t_*")))


def test_a_scope_survives_the_row_that_tells_it() -> None:
    for scope in (SHOP, MOVED, Scope()):
        assert Scope.from_json(scope.to_json()) == scope


def test_what_is_read_and_what_may_be_written() -> None:
    assert SHOP.reads(("shop", "orders"))
    assert not SHOP.reads(("shop", "tmp_x"))
    assert not SHOP.writes(("other", "orders"))
    assert not Scope().writes(("tailrace", "relay_log_info"))
    # Routes take a table from its own name and give it another.
    assert MOVED.writes(("copy", "orders"))
    assert not MOVED.writes(("shop", "orders"))
    assert MOVED.writes(("one", "all"))
    assert not MOVED.writes(("a1", "t_7"))
    assert MOVED.writes(("a1", "other"))
    assert MOVED.writes(("two", "t_7"))
    assert MOVED.writes(("b", "u"))


def test_tables_in_common_are_found_also_before_there_are_any() -> None:
    def shared(one: Scope, other: Scope) -> object:
        return common(one.writes, other.writes, meetings(one.written, other.written))

    assert shared(Scope(), Scope()) is not None
    assert shared(SHOP, Scope()) is not None
    assert shared(SHOP, Scope(include=("crm.*",))) is None
    assert shared(SHOP, Scope(include=("s*.orders",))) is not None
    assert shared(Scope(include=("shop.*",)), MOVED) is None
    assert shared(Scope(include=("copy.*",)), MOVED) is not None


@given(st.text("ab*?", max_size=6), st.text("ab*?", max_size=6))
def test_patterns_meet_where_any_short_name_fits_both(one: str, other: str) -> None:
    found = meet(one, other)
    names = ("".join(letters) for size in range(7) for letters in product("ab", repeat=size))
    if found is None:
        assert not any(fits(one, name) and fits(other, name) for name in names)
    else:
        assert fits(one, found)
        assert fits(other, found)


def neighbor(
    scope: Scope | None, *origins: str, prefix: str = "other", log_id: str | None = "log"
) -> OtherChannel:
    return OtherChannel(ChannelKey(prefix, "main"), log_id, frozenset(origins), scope, 7, "today")


def test_only_what_is_passed_on_feeds_a_pipeline() -> None:
    crm = neighbor(Scope(include=("crm.*",)), "server")
    assert channels_feeding([crm], SHOP, ()) == []
    assert channels_feeding([crm], Scope(), ()) == [crm]
    assert channels_feeding([neighbor(None)], SHOP, ()) != []
    assert crm.sources == {"server", "log"}


def levels(log_id: str | None, *there: OtherChannel) -> list[str]:
    facts = ChannelFacts({ChannelKey("mine", "main"): SHOP}, log_id, list(there))
    return [f"{r.code} {r.level if isinstance(r, Finding) else '?'}" for r in channel_findings(facts)]


def test_whose_a_channel_is() -> None:
    mine = neighbor(SHOP, prefix="mine")
    assert levels("log") == ["channel ok"]
    assert levels("log", mine) == ["channel ok"]
    assert levels("another", mine) == ["channel block"]
    assert levels("", mine) == ["channel block"]
    assert levels(None, mine) == ["channel ?"]
    assert levels("", neighbor(SHOP, prefix="mine", log_id=None)) == ["channel ok"]
    assert levels("log", neighbor(Scope(include=("crm.*",)))) == ["channel ok", "neighbours ok"]
    assert levels("log", neighbor(Scope())) == ["channel ok", "neighbours warn"]
    [unknown] = channel_findings(ChannelFacts({}, "log", None))
    assert isinstance(unknown, NotChecked)
