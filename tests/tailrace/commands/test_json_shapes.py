"""docs/JSON.md and the commands: which there are, and that a wrong field is found."""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer.main

from docs.commands import _commands
from tailrace.channels import listing
from tailrace.commands.app import app
from tailrace.service.copy_progress import NO_COPY
from tailrace.status import collect
from tests.support.json_shapes import check_output, command_of, differences, documented

SAME = {"compare"}


def test_each_command_with_json_is_documented() -> None:
    found = {
        name
        for name, command in _commands(typer.main.get_command(app), "")
        if any("--json" in parameter.opts for parameter in command.params)
    }
    assert found - SAME == set(documented())


def test_what_is_not_known_has_all_fields_too() -> None:
    status = documented()["status"]
    later = {"channel", "prefix", "memory", "lag", "state", "copies_incomplete"}
    assert set(collect._CHANNEL_FIELDS) | later == set(status["downstream"]["channels"]["[]"])
    assert {"servers", "topic", *collect._EPOCH_FIELDS} == set(status["kafka"])
    assert set(NO_COPY) == set(status["copy"])
    listed = documented()["channel list"]["channels"]["[]"]
    assert {"state", "lag", "error", *listing._LISTED} == set(listed)


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ({"a": 1, "b": [{"c": 1}], "d": {"x": 1, "y": 2}}, []),
        ({"a": None, "b": [], "d": None, "e": {"f": 1}}, []),
        ({"a": 1, "b": [{}], "d": {}}, [".b[].c is not printed"]),
        ({"a": 1, "b": [{"c": 1, "z": 1}], "d": {}}, [".b[].z is not documented"]),
        ({"b": [], "d": {}}, [".a is not printed"]),
        ({"a": [1], "b": [], "d": {}}, [".a[] is not documented"]),
        ({"error": {"code": "TR001"}}, []),
        ({"a": 1, "b": [], "d": {}, "e": {}}, [".e.f is not printed"]),
    ],
)
def test_what_differs_is_found(value: Any, wrong: list[str]) -> None:
    shape: Any = {"a": {}, "b": {"[]": {"c": {}}}, "d": {"*": {}}, "e?": {"f": {}}}
    assert list(differences(value, shape)) == wrong


def test_a_command_line_is_recognized() -> None:
    assert command_of(["relay", "readers", "--json"]) == "relay readers"
    assert command_of(["compare", "--json"]) == "validate"
    assert command_of(["relay", "readers"]) is None
    check_output(["relay", "cat", "--json"], "")
    with pytest.raises(AssertionError, match="is not printed"):
        check_output(["status", "--json"], json.dumps({"ok": True}))
