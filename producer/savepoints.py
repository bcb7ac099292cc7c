"""The names of savepoints, as both servers write them into SAVEPOINT and ROLLBACK TO."""

from __future__ import annotations

from collections.abc import Mapping


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


def known_savepoint(savepoints: Mapping[str, int], name: str) -> int | None:
    """What a name stands for; None if that is not sure.

    Servers compare these names without accents too, so of others than ASCII two may be the same one.
    """
    if not (name.isascii() and "".join(savepoints).isascii()):
        return None
    return savepoints.get(name)
