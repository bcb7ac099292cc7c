"""Names of databases and tables where a server does not tell their letters' cases apart.

With ``lower_case_table_names`` other than 0 a server keeps and compares names in lower case. Its TABLE_MAPs have them
so, and the text of a DDL as it was typed.
"""

from __future__ import annotations


def lowered(name: str) -> str:
    """A name in lower case as the servers make it: letter by letter, those of the basic plane only."""
    return name.lower() if name.isascii() else "".join(map(_letter, name))


def _letter(letter: str) -> str:
    lower = letter.lower()
    if letter == "\u0130":
        return "i"
    return lower if len(lower) == 1 and letter <= "\uffff" else letter
