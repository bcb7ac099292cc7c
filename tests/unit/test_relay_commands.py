"""`tailrace relay verify` as an operator runs it, on relay logs of real servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tailrace.cli.app import app
from tests.support.damage import LOGS, copy_of, flip


def relay(root: Path, *arguments: str) -> Result:
    config = root.with_name("tailrace.toml")
    config.write_text(f'[relay]\ndir = "{root}"\n')
    return CliRunner().invoke(app, ["relay", *arguments, "--config", str(config)])


@pytest.mark.parametrize("name", sorted(LOGS))
def test_verify_says_sound_or_what_is_wrong_and_what_to_do(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    result = relay(root, "verify")
    assert (result.exit_code, result.stdout.endswith("events: sound\n")) == (0, True)
    file = sorted(root.rglob("mysql-bin.000002"))[0]
    flip([file], 8 * 700)
    result = relay(root, "verify")
    assert result.exit_code == 5
    assert f"{file.parent.name}/{file.name}:" in result.stdout
    assert "remedy" in result.stdout
    found = json.loads(relay(root, "verify", "--json").stdout)
    assert not found["sound"]
    [finding] = found["findings"]
    assert finding["code"] == "TR304"
    assert finding["remedy"]
