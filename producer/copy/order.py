"""Orders objects that need each other, such as views that read views and tables with foreign keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from schemas.tables import QualifiedName

#: rules of foreign keys that change rows of the child together with those of the parent
_CHANGING = frozenset({"CASCADE", "SET NULL", "SET DEFAULT"})


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key.

    Attributes:
        on_delete, on_update: the rules, such as ``CASCADE``, as information_schema has them.
    """

    child: QualifiedName
    parent: QualifiedName
    on_delete: str
    on_update: str

    @property
    def cascades(self) -> bool:
        """Whether a change of the parent's rows changes the child's rows."""
        return not _CHANGING.isdisjoint((self.on_delete, self.on_update))


@dataclass(frozen=True)
class TableOrder:
    """Tables in the order of their copies.

    Attributes:
        names: parents before the children of their foreign keys; a circle of them starts anywhere.
        cascades: for each child whose rows a foreign key changes, the parents, which need not be in ``names``.
    """

    names: tuple[QualifiedName, ...]
    cascades: Mapping[QualifiedName, frozenset[QualifiedName]] = field(default_factory=dict)


def table_order(names: Collection[QualifiedName], keys: Iterable[ForeignKey]) -> TableOrder:
    """Order tables by their foreign keys, then by name."""
    needs: dict[QualifiedName, set[QualifiedName]] = {}
    cascades: dict[QualifiedName, set[QualifiedName]] = {}
    known = set(names)
    for key in keys:
        if key.child in known:
            needs.setdefault(key.child, set()).add(key.parent)
            if key.cascades:
                cascades.setdefault(key.child, set()).add(key.parent)
    order = in_order(known, needs)
    return TableOrder(tuple(order), {child: frozenset(parents) for child, parents in cascades.items()})


def in_order(
    names: Collection[QualifiedName], needs: Mapping[QualifiedName, Collection[QualifiedName]]
) -> list[QualifiedName]:
    """Return the names sorted, but each one after those that it needs.

    Args:
        needs: what each one needs; names that are not in ``names`` do not matter. A circle is cut at any point.
    """
    known, seen = set(names), set[QualifiedName]()
    order: list[QualifiedName] = []
    for name in sorted(known):
        # Not recursive: chains of views and foreign keys may be long.
        waiting = [(name, False)]
        while waiting:
            current, has_needs_before = waiting.pop()
            if has_needs_before:
                order.append(current)
            elif current not in seen:
                seen.add(current)
                waiting.append((current, True))
                needed = known.intersection(needs.get(current, ()))
                waiting += [(one, False) for one in sorted(needed, reverse=True)]
    return order
