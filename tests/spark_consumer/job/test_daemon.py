"""The parent of Spark's Python workers."""

from __future__ import annotations

from importlib import import_module

from spark_consumer.job import daemon


def test_the_modules_that_it_imports_are_there() -> None:
    for name in daemon._MODULES:
        import_module(name)
