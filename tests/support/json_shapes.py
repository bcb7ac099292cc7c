"""Holds what commands print with `--json` to docs/JSON.md: each printed field is there, and each field is printed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from tests.support.paths import CHECKOUT

#: names of fields and their fields; names end with ``?`` if they may be missing, ``[]`` is a list's element
Shape = dict[str, Any]
_SAME = {"compare": "validate"}
_LINES = ("relay cat", "topic cat")


@cache
def documented() -> dict[str, Shape]:
    """Return the shape of each command's document."""
    text = (CHECKOUT / "docs/JSON.md").read_text()
    found: dict[str, Shape] = {}
    for name, part in re.findall(r"^## tailrace ([a-z ]+)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE):
        shape = found[name] = {}
        for path in re.findall(r"^\| `([^`]+)` \|", part, re.MULTILINE):
            at = shape
            for step in path.replace("[]", ".[]").strip(".").split("."):
                at = at.setdefault(step, {})
    return found


def command_of(arguments: Sequence[str]) -> str | None:
    """Return the command that is documented, of a command line with ``--json``; None if it has no such option."""
    words = [_SAME.get(word, word) for word in arguments]
    names = [" ".join(words[:count]) for count in (2, 1)]
    return next((name for name in names if name in documented()), None) if "--json" in words else None


def check_output(arguments: Sequence[str], text: str) -> None:
    """Raise AssertionError if what a command has printed differs from what is documented."""
    name = command_of(arguments)
    if name is None or not text.strip():
        return
    for one in text.splitlines() if name in _LINES else [text]:
        wrong = list(differences(json.loads(one), documented()[name]))
        assert not wrong, f"tailrace {name} and docs/JSON.md differ: {wrong}"


def differences(value: Any, shape: Shape, path: str = "") -> Iterator[str]:
    """Return the fields that are printed or documented alone."""
    if isinstance(value, list):
        for one in value if "[]" in shape else ():
            yield from differences(one, shape["[]"], f"{path}[]")
        if value and "[]" not in shape:
            yield f"{path}[] is not documented"
    elif isinstance(value, dict):
        fields = {name.removesuffix("?"): inner for name, inner in shape.items()}
        for name, one in value.items():
            if name in fields:
                yield from differences(one, fields[name], f"{path}.{name}")
            elif "*" not in fields and not (name == "error" and "code" in one):
                yield f"{path}.{name} is not documented"
        if not value.get("error"):
            needed = (name for name in shape if not name.endswith("?") and name not in ("*", "[]"))
            yield from (f"{path}.{name} is not printed" for name in needed if name not in value)
