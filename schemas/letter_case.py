"""Names of databases and tables on servers that ignore their case.

If ``lower_case_table_names`` is not 0, a server keeps and compares names in lower case. Its TABLE_MAP events have
the names in lower case; the text of a DDL has them as they were typed.
"""

from __future__ import annotations

from unicodedata import ucd_3_2_0

# The servers know the letters of Unicode 3.0; these were added in 3.1 and 3.2.
_NEWER = frozenset("\u0220\u03d8\u03f4\u048a\u04c5\u04c9\u04cd") | {chr(n) for n in range(0x500, 0x510)}


def lowered(name: str) -> str:
    """Convert a name to lower case as the servers do (utf8mb3_general_ci), letter by letter."""
    return name.lower() if name.isascii() else "".join(map(_letter, name))


def _letter(letter: str) -> str:
    lower = "i" if letter == "\u0130" else letter.lower()
    known = letter <= "\uffff" and letter not in _NEWER and len(lower) == 1
    return lower if known and all(ucd_3_2_0.category(char) != "Cn" for char in (letter, lower)) else letter
