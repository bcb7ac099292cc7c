"""A slice that is ready to be applied, in the four forms that it can have.

Its rows were found to be exactly those of its epochs, as far as they are read already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from schemas.errors import EventId
from schemas.tables import QualifiedName
from spark_consumer.apply.nontransactional import TableSteps
from spark_consumer.apply.tables.error_log import Directive
from spark_consumer.apply.workers.info import Ahead
from spark_consumer.apply.workers.part import WorkerPart
from spark_consumer.apply.writes import Writes
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.counters import NO_STAGES, Stages
from spark_consumer.plan.plan import TablePlan
from spark_consumer.plan.refusal import Event


@dataclass(frozen=True)
class PreparedRows:
    """Rows that are written in the transaction that moves the position.

    Attributes:
        stages: what became of the rows on the way.
        nontransactional: what is written beside the transaction.
        events: of a slice that is applied row by row, which row changes it has.
        directives: what an operator has decided about some of them.
        rest_of: where workers have applied some parts of the slice already and this is the rest: one of these workers.
    """

    slice_: Slice
    writes: Writes = field(default_factory=Writes)
    stages: Stages = NO_STAGES
    nontransactional: tuple[TableSteps, ...] = ()
    events: Mapping[EventId, Event] = field(default_factory=dict)
    directives: tuple[Directive, ...] = ()
    rest_of: Ahead | None = None

    @property
    def _beside(self) -> Writes:
        """The statements for tables without transactions."""
        return Writes(ordered=tuple(step.statement for one in self.nontransactional for step in one.steps))

    @property
    def statements(self) -> int:
        return self.writes.statements + self._beside.statements

    @property
    def tables(self) -> dict[QualifiedName, TablePlan]:
        """The downstream's tables that it writes, by name."""
        return self.writes.tables | self._beside.tables


@dataclass(frozen=True)
class PreparedParts:
    """Parts that workers write, each in a transaction of its own, before the one that moves the position.

    Attributes:
        slice_id: what the workers know the slice by; no other attempt to cut and share these epochs has it.
        stages: what became of the rows on the way.
    """

    slice_: Slice
    parts: tuple[WorkerPart, ...]
    slice_id: str
    stages: Stages = NO_STAGES

    @property
    def statements(self) -> int:
        return sum(part.writes.statements for part in self.parts)


@dataclass(frozen=True)
class BehindDdl:
    """The rows of a DDL, such as CREATE TABLE … SELECT: they can be planned only when it has made their table.

    Attributes:
        prepare: reads and plans them then.
    """

    slice_: Slice
    prepare: Callable[[], PreparedRows]


@dataclass(frozen=True)
class OneByOne:
    """Epochs of which each is to be planned and applied as a slice of its own. Nothing is read yet."""

    slice_: Slice


#: what is one transaction, or one with those of workers before it
OneSlice = PreparedRows | PreparedParts | BehindDdl
Prepared = OneSlice | OneByOne
