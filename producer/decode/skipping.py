"""What cannot be replicated and is passed over because a rule of the operator's says so: counted, never in silence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import structlog
from pydantic import Field

from schemas.errors import DecodeError, Where
from schemas.letter_case import lowered
from schemas.tables import compile_pattern

log = structlog.get_logger()

#: a statement that changes rows by its text; a rows event whose images lack what is needed
Skippable = Literal["statement", "image"]


@dataclass(frozen=True)
class SkipRule:
    """One rule of ``[[skip]]``: what is passed over of which tables."""

    schema_pattern: Annotated[
        str, Field(min_length=1, description="schemas, with * and ? as wildcards", examples=["shop"])
    ]
    table_pattern: Annotated[
        str, Field(min_length=1, description="tables, with * and ? as wildcards", examples=["log_*"])
    ]
    events: Annotated[
        tuple[Skippable, ...],
        Field(
            min_length=1,
            description="statement: DML logged as text; image: rows whose image lacks what is needed",
            examples=[["statement", "image"]],
        ),
    ]

    def in_lower_case(self) -> SkipRule:
        """The rule for a server that has all names in lower case."""
        return replace(
            self, schema_pattern=lowered(self.schema_pattern), table_pattern=lowered(self.table_pattern)
        )

    def allows(self, db: str, table: str, kind: Skippable) -> bool:
        """Whether such an event of a table is passed over."""
        patterns = ((self.schema_pattern, db), (self.table_pattern, table))
        return kind in self.events and all(compile_pattern(p).fullmatch(name) for p, name in patterns)


class Skipping:
    """The rules, and which uses of them were reported so far."""

    def __init__(self, rules: Iterable[SkipRule] = ()) -> None:
        self._rules = tuple(rules)
        self._reported: set[tuple[str, str, str]] = set()

    def passes_over(
        self, kind: Skippable, tables: Iterable[tuple[str, str]], error: DecodeError, where: Where
    ) -> tuple[tuple[str, str, str], ...]:
        """What to count if the rules pass over an event that concerns these tables; else raises ``error``."""
        names = list(dict.fromkeys(tables))
        if not names or not all(any(rule.allows(*name, kind) for rule in self._rules) for name in names):
            raise error
        counted = tuple((*name, kind) for name in names)
        for db, table, _ in counted:
            if (db, table, kind) not in self._reported:
                self._reported.add((db, table, kind))
                log.warning("skipping", table=f"{db}.{table}", kind=kind, where=str(where), reason=error.what)
        return counted
