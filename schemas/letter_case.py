"""Names of databases and tables on servers that ignore their case.

With ``lower_case_table_names`` other than 0 a server keeps and compares names in lower case. Its TABLE_MAPs have them
so, and the text of a DDL as it was typed.
"""

from __future__ import annotations

from unicodedata import ucd_3_2_0

# The servers' letters are those of Unicode 3.0; these came with 3.1 and 3.2.
_NEWER = frozenset("\u0220\u03d8\u03f4\u048a\u04c5\u04c9\u04cd") | {chr(n) for n in range(0x500, 0x510)}


def lowered(name: str) -> str:
    """A name in lower case as the servers make it (utf8mb3_general_ci), letter by letter."""
    return name.lower() if name.isascii() else "".join(map(_letter, name))


def _letter(letter: str) -> str:
    lower = "i" if letter == "\u0130" else letter.lower()
    known = letter <= "\uffff" and letter not in _NEWER and len(lower) == 1
    return lower if known and all(ucd_3_2_0.category(one) != "Cn" for one in (letter, lower)) else letter
