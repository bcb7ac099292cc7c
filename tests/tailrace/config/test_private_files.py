"""What we write is for its user alone, whatever the umask, and whatever was there before."""

from __future__ import annotations

import os
from pathlib import Path

from relay_store.write.writer import RelayWriter
from schemas.access.private_files import make_folder, opener, others_may
from schemas.access.server_url import ServerUrl
from spark_consumer.job.checkpoint import in_use
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.sinks.parquet.folder import Folder
from tailrace.config.file import load
from tailrace.config.secret_files import readable_by_others
from tailrace.preflight.finding import Finding
from tailrace.preflight.local import relay_findings
from tailrace.service.status_socket import serve_status


def test_a_folder_that_is_there(tmp_path: Path) -> None:
    for name, mode in (("empty", 0o755), ("read", 0o750), ("written", 0o777)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    (tmp_path / "read" / "other").touch()
    (tmp_path / "written" / "other").touch()
    assert [make_folder(tmp_path / name, chosen=True) for name in ("empty", "read", "written")] == [
        "",
        "read",
        "write",
    ]
    assert others_may(tmp_path / "empty") == ""
    # What has a name of ours is ours.
    assert make_folder(tmp_path / "written") == ""


def test_a_file_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o666)
    with open(path, "a", opener=opener) as file:
        file.write("more")
    assert others_may(path) == ""


def test_what_the_programs_write(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        writer = RelayWriter.open(tmp_path / "relay")
        writer.open_subdir("3e11fa47-71ca-11e1-9e33-c80aa9429562")
        writer.rotate("mysql-bin.000001")
        writer.close()
        (tmp_path / "relay" / writer.subdir).chmod(0o755)
        RelayWriter.open(tmp_path / "relay").close()
        folder = Folder(tmp_path / "changes")
        folder.open()
        with folder.staging(0) as staged:
            staged.write_bytes(b"rows")
        folder.commit({}, {"0": "db/t/0.parquet"})
        config = ConsumerConfig("", "", ServerUrl("h"), checkpoint_dir=tmp_path / "checkpoint")
        with (
            in_use(config.channel_dir),
            serve_status(config.checkpoint_dir, "main.sock", dict),
        ):
            written = list(tmp_path.rglob("*"))
            assert {"mysql-bin.000001", "0.parquet", "main.sock", "lock"} <= {path.name for path in written}
            assert [path for path in written if others_may(path)] == []
    finally:
        os.umask(before)
        folder.close()


def test_files_with_secrets(tmp_path: Path) -> None:
    file = tmp_path / "tailrace.toml"
    for name in ("key.pem", "password", "kafka"):
        (tmp_path / name).write_text("x")

    def found(text: str, mode: int = 0o644) -> list[str]:
        file.write_text(text)
        for path in tmp_path.iterdir():
            path.chmod(mode)
        return [path.name for path in readable_by_others(file, load(file))]

    open_url = '[source]\nurl = "mysql://me@h"\n'
    assert found(open_url) == []
    for text in (
        '[source]\nurl = "mysql://me:secret@h"\n',
        open_url + 'password = "secret"\n',
        '[channel.a.target]\nurl = "mysql://me:secret@h"\n',
        '[kafka]\nsasl-password = "secret"\nsasl-username = "me"\nsecurity-protocol = "sasl_ssl"\n',
        '[kafka]\nschema-registry-url = "https://me:secret@h"\n',
        '[consumer]\n"spark.authenticate.secret" = "secret"\n',
    ):
        assert found(text) == ["tailrace.toml"], text
        assert found(text, 0o640) == ["tailrace.toml"], text
        assert found(text, 0o600) == [], text
    named = (
        open_url.replace("@h", f"@h/?ssl-key={tmp_path}/key.pem&ssl-cert=c.pem")
        + 'password-file = "password"\n'
    )
    assert found(named + '[channel.a.target]\nurl = "mysql://h"\npassword-file = "kafka"\n') == [
        "key.pem",
        "password",
        "kafka",
    ]
    assert found(named, 0o600) == []


def test_check_says_what_others_may_do(tmp_path: Path) -> None:
    relay = tmp_path / "relay"
    relay.mkdir()
    relay.chmod(0o755)
    private = [one for one in relay_findings(relay) if one.code == "private"]
    assert private == []  # empty, it becomes private with the first start
    (relay / "other").touch()
    [found] = [one for one in relay_findings(relay) if one.code == "private"]
    assert isinstance(found, Finding)
    assert (found.level, found.hint) == ("warn", f"chmod 700 {relay}")
