"""The names of savepoints, as both servers write them into SAVEPOINT and ROLLBACK TO."""

from __future__ import annotations


def savepoint_name(text: str) -> str:
    """The name in the text of a SAVEPOINT or ROLLBACK TO, with ASCII letters in lower case.

    Args:
        text: the keywords and the name, which the session may have in backticks, double quotes, or bare.
    """
    name = text.split(None, 2)[2] if text[:8].upper() == "ROLLBACK" else text.split(None, 1)[1]
    quote = name[0]
    if quote in '`"':
        name = name[1:-1].replace(quote * 2, quote)
    return name.lower()


class Savepoints:
    """Those of one transaction.

    Servers compare these names without accents too, so of others than ASCII two may be the same one.
    """

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._sure = True

    def add(self, name: str, place: int) -> None:
        """A savepoint; one of the same name is gone."""
        self._places[name] = place
        self._sure = self._sure and name.isascii()

    def find(self, name: str) -> int | None:
        """The place that a name stands for; None if that is not sure."""
        return self._places.get(name) if self._sure and name.isascii() else None
