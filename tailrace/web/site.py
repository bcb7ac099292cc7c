"""What the page and its JSON interface are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tailrace.web.access import Access
from tailrace.web.runner import Runner
from tailrace.web.watch import Seen

Part = dict[str, Any]


class Watched(Protocol):
    """Has seen the pipeline."""

    @property
    def seen(self) -> Seen:
        """What was seen last."""


class Searches(Protocol):
    """Searches in the log."""

    def row_history(self, table: str, wanted: dict[str, str], before: int | None = None) -> Part:
        """Return a row's changes; see ``Lookups``."""

    def structures(self, table: str, at: str = "", until: str = "") -> Part:
        """Return a table's structures; see ``Lookups``."""


@dataclass(frozen=True)
class Site:
    """One pipeline's page.

    Attributes:
        prefix: the pipeline's name.
    """

    prefix: str
    access: Access
    watch: Watched
    lookups: Searches
    runner: Runner
