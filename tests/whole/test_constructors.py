"""Constructors only construct: what connects, opens, reads or writes is a function or a classmethod."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.paths import CHECKOUT

PACKAGES = ("schemas", "relay_store", "producer", "spark_consumer", "tailrace")
ACTS = frozenset(
    {"assign", "connect", "consume", "execute", "mkdir", "open", "poll", "query", "read_bytes", "read_text", "rows",
     "run", "send", "submit", "unlink", "value", "write_bytes", "write_text"}
)  # fmt: skip


def _constructors() -> Iterator[tuple[str, ast.FunctionDef]]:
    for package in PACKAGES:
        for path in (CHECKOUT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    for function in node.body:
                        if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                            yield f"{path.relative_to(CHECKOUT)}: {node.name}", function


def _calls(node: ast.AST) -> Iterator[str]:
    """The names that are called at once, and not in a function that is only made."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Lambda | ast.FunctionDef):
            continue
        if isinstance(child, ast.Call):
            function = child.func
            yield function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        yield from _calls(child)


def test_no_constructor_talks_to_the_world() -> None:
    acting = {name: ACTS & set(_calls(function)) for name, function in _constructors()}
    assert {name: calls for name, calls in acting.items() if calls} == {}
