"""What one transaction writes."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.tables import QualifiedName
from spark_consumer.plan.plan import TablePlan
from spark_consumer.plan.statements import Statement
from spark_consumer.rows.ordered import OrderedStatement

TableStatements = tuple[tuple[TablePlan, Statement], ...]


@dataclass(frozen=True)
class Writes:
    """Statements, in the order in which they run.

    Attributes:
        deletes: of all tables; then
        inserts: of all tables; then
        ordered: those of tables that keep the upstream's order.
    """

    deletes: TableStatements = ()
    inserts: TableStatements = ()
    ordered: tuple[OrderedStatement, ...] = ()

    @property
    def statements(self) -> int:
        """How many they are."""
        return len(self.deletes) + len(self.inserts) + len(self.ordered)

    @property
    def rows(self) -> int:
        """How many rows the log says that they change."""
        merged = sum(statement.rows for _, statement in (*self.deletes, *self.inserts))
        return merged + sum(one.rows for one in self.ordered)

    @property
    def tables(self) -> dict[QualifiedName, TablePlan]:
        """The downstream's tables that they write, by name."""
        merged = [table for table, _ in (*self.deletes, *self.inserts)]
        tables = [*merged, *(one.table for one in self.ordered)]
        return {table.target_name: table for table in tables if table.definition}
