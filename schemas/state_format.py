"""Refuses stored state of a newer release. Each place of state has a version of its format; without one it is 1."""

from __future__ import annotations

from schemas.errors import TailraceError


def refuse_newer(place: str, found: int, known: int) -> None:
    """Raise TailraceError TR191 if what is stored has a newer format than this release knows.

    Args:
        place: where it is stored.
        found: the version of what is stored.
        known: the newest version that this release reads.
    """
    if found > known:
        raise TailraceError(
            "TR191",
            f"{place} was written by a newer release of Tailrace: its format is {found}, and this release reads"
            f" formats up to {known}",
            hint="install that release again; nothing was changed",
        )
