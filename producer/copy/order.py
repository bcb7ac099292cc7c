"""Orders objects that need each other, such as views that read views and tables with foreign keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from schemas.tables import QualifiedName


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
