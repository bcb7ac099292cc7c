"""How the tests hang together."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.paths import CHECKOUT, GOLDEN

TESTS = CHECKOUT / "tests"


def _imported(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    return [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]


def test_helpers_are_imported_from_the_support_package_only() -> None:
    for path in TESTS.rglob("*.py"):
        own = [name for name in _imported(path) if name.split(".")[0] in ("tests", "conftest")]
        allowed = ("tests.support", "tests.golden.renew")
        assert all(name.startswith(allowed) for name in own), path


def test_every_folder_of_tests_is_a_package() -> None:
    """Otherwise pytest takes two modules of one name for one, and leaves the tests of one out."""
    for path in TESTS.rglob("test_*.py"):
        assert (path.parent / "__init__.py").exists(), path
        assert GOLDEN not in path.parents, path


def test_no_folder_has_more_than_fifteen_modules() -> None:
    for folder in {path.parent for path in TESTS.rglob("test_*.py")}:
        assert len(list(folder.glob("test_*.py"))) <= 15, folder


def test_no_test_is_longer_than_a_screen() -> None:
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 60, f"{path} {node.name}"
