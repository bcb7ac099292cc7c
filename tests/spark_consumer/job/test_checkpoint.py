"""When Spark's checkpoint is used again, and when it is set aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from schemas.errors import LogError
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.tracker import STATE_VERSION
from spark_consumer.job.checkpoint import Checkpoint, CheckpointOwner, in_use

OWNER = CheckpointOwner("main", "shop", "uuid")
POSITION = Position(4, 8, "", 1, -1, "uuid", 1, 0, None)


class KeptLog:
    """An epochs topic from offset 2 on, all of which is applied."""

    def bounds(self) -> tuple[int, int]:
        return 2, 9

    def epochs(self, start: int | None = None) -> list[Any]:
        return []


def folder(path: Path, owner: dict[str, Any], end: int = 9, topic: str = "shop.epochs") -> Path:
    for name, text in (("commits/0", "v1"), ("offsets/0", f'v1\n{{}}\n{{"{topic}":{{"0":{end}}}}}')):
        file = path / "spark" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    (path / "owner.json").write_text(json.dumps(owner))
    return path


def used(path: Path) -> tuple[bool, str]:
    with capture_logs() as logs:
        kept = Checkpoint(path, OWNER).ready(POSITION, cast(LogReader, KeptLog()))
    return kept, logs[0]["reason"] if logs else ""


MINE = {"channel": "main", "prefix": "shop", "ledger_uuid": "uuid", "state_version": STATE_VERSION}


def test_a_checkpoint_of_this_release_is_used_again(tmp_path: Path) -> None:
    assert used(folder(tmp_path, MINE)) == (True, "")
    assert json.loads((tmp_path / "owner.json").read_text()) == MINE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"state_version": None}, f"its state version is 1; this release needs {STATE_VERSION}"),
        ({"state_version": 99}, f"its state version is 99; this release needs {STATE_VERSION}"),
        ({"channel": "other"}, "it belongs to another channel, downstream or log"),
        ({"channel": "other", "state_version": None}, "it belongs to another channel, downstream or log"),
        ({"ledger_uuid": "x"}, "it belongs to another channel, downstream or log"),
    ],
)
def test_one_of_another_form_or_owner_is_set_aside(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    owner = {name: value for name, value in (MINE | changes).items() if value is not None}
    assert used(folder(tmp_path, owner)) == (False, reason)
    assert len(list(tmp_path.glob("spark.aside-*"))) == 1
    assert json.loads((tmp_path / "owner.json").read_text()) == MINE


def test_one_that_is_damaged_or_behind_the_log_is_set_aside(tmp_path: Path) -> None:
    assert used(folder(tmp_path / "a", MINE, end=1)) == (False, "it is older than the first epoch in the log")
    (folder(tmp_path / "b", MINE) / "owner.json").write_text("7")
    kept, reason = used(tmp_path / "b")
    assert not kept
    assert reason.startswith("it is damaged")


def test_one_of_another_log_and_offsets_that_are_none_are_set_aside(tmp_path: Path) -> None:
    assert used(folder(tmp_path / "a", MINE, topic="t.epochs")) == (
        False,
        "it is damaged: it follows topic t.epochs",
    )
    for number, text in enumerate(("0", "[]", "v1\n{}\n[9]", '"x"', "\xff", "", '{"shop.epochs": 9}')):
        made = folder(tmp_path / str(number), MINE)
        (made / "spark" / "offsets" / "0").write_text(text, encoding="latin-1")
        kept, reason = used(made)
        assert (kept, reason.partition(":")[0]) == (False, "it is damaged")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(
            LogError, match=r"TR564: the checkpoint folder \S+/file/main cannot be written: Not a dir"
        ),
        in_use(tmp_path / "file" / "main"),
    ):
        pass
    (tmp_path / "owner.json").mkdir()
    with pytest.raises(LogError, match=r"TR564.*Is a directory"):
        used(tmp_path)
