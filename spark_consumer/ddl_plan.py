"""What several statements an upstream's DDL became, kept in the position's ``ddl_intent`` until all of them have run.

Each has a number of the ledger by its place among them. Between two starts the rules may change, and with them the
statements: then the numbers would speak of others. So what has begun is brought to its end as it was begun.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from schemas.epoch import SchemaChanged
from spark_consumer import online_tables
from spark_consumer.online_tables import OnlineTables, statement_of


@dataclass(frozen=True)
class Carried:
    """What a channel makes of a DDL.

    Attributes:
        statements: what it runs, in order.
        tables: the tables of online schema changes behind it.
        left_out: why it does not run what upstream ran: "filtered" by tables, filters or routes; "ignored" by [ddl];
            "passed over", since the merged table needs nothing of it; "online", an online schema change's; "in part",
            the channel has but some of the tables; "skipped" or "replaced" by an operator.
        ran: how many numbers of the ledger have been used for it already, before those of ``statements``.
    """

    statements: Sequence[SchemaChanged]
    tables: OnlineTables
    left_out: Sequence[str] = ()
    ran: int = 0


def to_json(place: str, carried: Carried) -> str:
    """For the position; ``place`` is the DDL's in the upstream."""
    plan = {
        "statements": [asdict(one) for one in carried.statements],
        "tables": carried.tables.to_json(),
        "left_out": list(carried.left_out),
    }
    return json.dumps({"place": place, "plan": plan})


def of(text: str | None, place: str) -> Carried | None:
    """The plan in a position, if there is one for this place."""
    content = json.loads(text) if text else {}
    if "plan" not in content or content["place"] != place:
        return None
    plan = content["plan"]
    return Carried(
        tuple(map(statement_of, plan["statements"])),
        online_tables.from_json(plan["tables"]),
        tuple(plan["left_out"]),
    )


def texts(text: str | None) -> tuple[str, ...]:
    """The statements of the plan in a position, whatever DDL it is for; none without one."""
    plan = (json.loads(text) if text else {}).get("plan", {})
    return tuple(one["statement"] for one in plan.get("statements", ()))
