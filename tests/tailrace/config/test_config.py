"""The configuration: what a file and the environment may say, and how a mistake is named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from schemas.errors import ConfigError, ExitCode
from schemas.settings import parse_duration, parse_size
from tailrace.config.addresses import kafka_security, server_url
from tailrace.config.file import SECTIONS, field_names, load
from tailrace.config.model import Channel, Config, Consumer
from tailrace.config.text import effective_toml, example
from tests.support.paths import CHECKOUT

PIPELINE = (CHECKOUT / "docs/PIPELINE.md").read_text()


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAILRACE_SOURCE_PASSWORD", "TAILRACE_TARGET_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def _load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "tailrace.toml"
    path.write_text(text)
    return load(path)


def test_the_example_loads_and_shows_every_field(tmp_path: Path) -> None:
    config = _load(tmp_path, example())
    assert config.source is not None
    assert config.kafka.prefix == "tailrace"
    for section, model in SECTIONS.items():
        assert f"[{section}]" in example()
        for field in field_names(model):
            assert field == "spark" or f"{field} = " in example()


def test_the_example_loads_with_every_optional_field_switched_on(tmp_path: Path) -> None:
    text = example().replace("# password = ", "password = ").replace("# include", "include")
    config = _load(tmp_path, text.replace('# "spark', '"spark').replace("# server-id", "server-id"))
    assert config.tables.include == ("shop.*",)
    assert config.consumer.spark == {"spark.driver.memory": "1g"}


def test_shown_configuration_is_itself_a_configuration_without_passwords(tmp_path: Path) -> None:
    text = '[source]\nurl = "mysql://me:geheim@up/"\n[target]\nurl = "mysql://me@down"\npassword = "geheim"\n'
    config = _load(tmp_path, text)
    shown = effective_toml(config)
    assert "geheim" not in shown
    assert "geheim" not in repr(config)
    assert _load(tmp_path, shown).kafka == config.kafka


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    config = _load(tmp_path, '[relay]\ndir = "log"\n')
    assert config.relay.dir == tmp_path / "log"
    assert config.consumer.checkpoint_dir == tmp_path / "checkpoint"


def test_spark_properties_nested_quoted_and_both(tmp_path: Path) -> None:
    text = '[consumer]\nspark.executor.memory = "2g"\n"spark.a" = 1\n"spark.a.b" = true\n'
    expected = {"spark.executor.memory": "2g", "spark.a": "1", "spark.a.b": "true"}
    assert _load(tmp_path, text).consumer.spark == expected


@pytest.mark.parametrize(
    ("text", "size"), [("16MiB", 16 << 20), ("1.5 kib", 1536), ("2MB", 2_000_000), (5, 5)]
)
def test_sizes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("200ms", 0.2), ("1s", 1.0), ("2m", 120.0), ("7d", 604800.0), (0.5, 0.5), ("3", 3.0)],
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        (
            '[source]\nurl = "mysql://u@h"\nserver_id = 3',
            "TR102",
            ["line 3", "server_id", "did you mean server-id"],
        ),
        ("[sorce]", "TR102", ["line 1", "[sorce]", "did you mean source", "kafka"]),
        ('[source]\nurl = "pg://u@h"', "TR103", ["[source] url", "mysql, mariadb"]),
        ("[source]\nserver-id = 3", "TR103", ["[source] url is missing", "TAILRACE_SOURCE_URL"]),
        (
            '[source]\nurl = "mysql://h"\nstart = "now"',
            "TR103",
            ["line 3", "'now'", "'copy', 'earliest' or 'current'"],
        ),
        ('[epoch]\nmax-bytes = "3 parsecs"', "TR103", ["3 parsecs", "16MiB"]),
        ('[epoch]\nmax-delay = "soon"', "TR103", ["soon", "200ms"]),
        ('[tables]\ninclude = ["a.b.c"]', "TR103", ["a.b.c", "db.table"]),
        ('[tables]\ninclude = "a.b"', "TR103", ["list"]),
        ("[kafka]\npartitions = 0", "TR103", ["partitions is 0", "greater than or equal to 1"]),
        ("[kafka\n", "TR101", ["TOML"]),
        ("kafka = 3", "TR102", ["[kafka]"]),
    ],
)
def test_a_mistake_is_named_with_its_remedy(tmp_path: Path, text: str, code: str, named: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, text)
    assert caught.value.code == code
    assert caught.value.exit_code is ExitCode.USAGE
    for part in named:
        assert part in str(caught.value)


def test_a_wrong_url_never_shows_its_password(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, '[source]\nurl = "mysql://u:geheim@h/?nonsense=1"')
    assert "geheim" not in str(caught.value)


def test_a_missing_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="config example"):
        load(tmp_path / "none.toml")


def test_a_section_whose_name_is_a_method_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pydantic's models have methods `copy` and `validate`."""
    text = '[validate]\nevery = "90m"\n[copy]\nconnections = 3\n'
    config = _load(tmp_path, text)
    assert (config.validation.every, config.copies.connections) == (5400, 3)
    monkeypatch.setenv("TAILRACE_VALIDATE_EVERY", "2h")
    assert _load(tmp_path, text).validation.every == 7200


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_KAFKA_BOOTSTRAP_SERVERS", "k1:9092")
    monkeypatch.setenv("TAILRACE_TABLES_INCLUDE", '["a.*"]')
    config = _load(tmp_path, '[kafka]\nbootstrap-servers = "k2:9092"\nprefix = "p"\n')
    assert (config.kafka.bootstrap_servers, config.kafka.prefix) == ("k1:9092", "p")
    assert config.tables.include == ("a.*",)


def test_an_environment_variable_that_is_not_json_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_TABLES_INCLUDE", "a.*")
    with pytest.raises(ConfigError, match="TR105"):
        _load(tmp_path, "")


def test_passwords_come_from_environment_then_file_then_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("from file\n")
    text = '[source]\nurl = "mysql://u:inline@h"\n'
    sources = []
    for extra in ("", 'password-file = "secret"\n', 'password = "key"\n'):
        source = _load(tmp_path, text + extra).source
        assert source is not None
        sources.append(server_url(source).password)
    monkeypatch.setenv("TAILRACE_SOURCE_PASSWORD", "from environment")
    source = _load(tmp_path, text + 'password-file = "secret"\n').source
    assert source is not None
    assert [*sources, server_url(source).password] == ["inline", "from file", "key", "from environment"]


RULES = """
[target]
url = "mysql://u@h"
[[routes]]
schema-pattern = "shop_*"
target-schema = "shop"
[[filters]]
schema-pattern = "shop_*"
events = ["Truncate  Table", "all dml"]
action = "Ignore"
[channel.copy]
safe-mode = true
safe-mode-duration = "2m"
[channel.copy.target]
url = "mysql://other@h2"
password = "geheim"
[channel.copy.tables]
include = ["shop_1.*"]
[[channel.copy.routes]]
schema-pattern = "shop_1"
target-schema = "one"
"""


def test_a_channel_replaces_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    config = _load(tmp_path, RULES)
    own = config.for_channel("copy")
    assert own.target is not None
    assert config.target is not None
    assert (own.target.url, config.target.url) == ("mysql://other@h2", "mysql://u@h")
    assert [r.target_schema for r in own.routes] == ["one"]
    assert [r.target_schema for r in config.for_channel("main").routes] == ["shop"]
    assert own.filters == config.filters
    assert (own.consumer.safe_mode, own.consumer.safe_mode_duration) == (True, 120.0)
    assert not config.consumer.safe_mode
    assert own.tables.include == ("shop_1.*",)


def test_a_channel_has_every_setting_of_the_pipeline_for_itself(tmp_path: Path) -> None:
    of_the_process = {"channel", "checkpoint_dir", "spark"}
    own = set(Consumer.model_fields) - of_the_process
    assert own <= set(Channel.model_fields)
    [told] = re.findall(r"all but `channel`, .*: (`max-batch-rows`.*)\. Each replaces", PIPELINE)
    assert {name.replace("-", "_") for name in re.findall("`(.*?)`", told)} == own
    text = '[channel.slow]\nmax-batch-bytes = "1MiB"\nmax-batch-delay = "3s"\nretry-time = "24h"\npause-time = "1s"\n'
    slow = _load(tmp_path, text).for_channel("slow").consumer
    assert (slow.max_batch_bytes, slow.max_batch_delay, slow.retry_time, slow.pause_time) == (
        1 << 20,
        3,
        86_400,
        1,
    )


@pytest.mark.parametrize(
    "setting",
    [
        "worker-count = 0",
        "statement-rows = 0",
        'consistency = "row"',
        "retry-time = -1",
        'max-batch-bytes = "1"',
    ],
)
def test_a_channel_takes_no_value_that_the_consumer_would_not(tmp_path: Path, setting: str) -> None:
    for section in ("consumer", "channel.copy"):
        with pytest.raises(ConfigError, match="TR103"):
            _load(tmp_path, f"[{section}]\n{setting}\n")


def test_rules_and_channels_are_shown_as_a_configuration_without_passwords(tmp_path: Path) -> None:
    config = _load(tmp_path, RULES)
    shown = effective_toml(config)
    assert "geheim" not in shown
    again = _load(tmp_path, shown)
    assert (again.routes, again.filters) == (config.routes, config.filters)
    assert again.channel["copy"].routes == config.channel["copy"].routes


def test_the_examples_rules_can_be_switched_on(tmp_path: Path) -> None:
    text = example()
    for line in ("[[filters]]", "[[routes]]", "[channel.copy"):
        assert f"# {line}" in text
    rules = text[text.index("# [[filters]]") :]
    config = _load(
        tmp_path,
        "\n".join(line.removeprefix("# ") for line in rules.splitlines() if "=" in line or "[" in line),
    )
    assert config.routes[0].target_table == "orders"
    assert config.filters[0].events == ("delete", "truncate table", "drop table")
    assert config.for_channel("copy").consumer.safe_mode


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ('[[routes]]\nschema-pattern = "a"\ntarget-shema = "b"', "TR102", ["target-shema", "target-schema"]),
        ('[[routes]]\nschema-pattern = "a"', "TR103", ["[routes] target-schema is missing"]),
        ('[[routes]]\nschema-pattern = "a"\ntarget-schema = "mysql"', "TR103", ["is a system schema"]),
        ('[routes]\nschema-pattern = "a"', "TR102", ["[[routes]]"]),
        ('[[filters]]\nschema-pattern = "a"\naction = "ignore"', "TR103", ["'Do' or 'Ignore'"]),
        (
            '[[filters]]\nschema-pattern = "a"\naction = "Do"\nevents = ["insrt"]',
            "TR103",
            ["insrt", "all dml"],
        ),
        (
            '[[filters]]\nschema-pattern = "a"\naction = "Do"\nsql-pattern = ["("]',
            "TR103",
            ["regular expression"],
        ),
        ("[channel.x]\ntargets = 1", "TR102", ["targets in [channel.x]", "target"]),
        ('[channel.x.tables]\nincluded = ["a.b"]', "TR102", ["included", "include"]),
        ('[[channel.x.routes]]\nschema-pattern = "a"', "TR103", ["target-schema is missing"]),
        ("[consumer]\nsafe-mode = 3", "TR103", ["safe-mode"]),
    ],
)
def test_a_mistake_in_a_rule_is_named(tmp_path: Path, text: str, code: str, named: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, text)
    assert caught.value.code == code
    for part in named:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        ("folder", "Is a directory"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"a\nb\n", "another line"),
        (b"a\0b", "NUL"),
        (bytes(range(128, 256)), "not UTF-8"),
        (b"x" * (1 << 17), "more than a password"),
    ],
    ids=["missing", "folder", "empty", "blank", "lines", "nul", "binary", "long"],
)
def test_a_password_file_that_holds_no_password(
    tmp_path: Path, content: bytes | str | None, why: str
) -> None:
    file = tmp_path / "password"
    if content == "folder":
        file.mkdir()
    elif isinstance(content, bytes):
        file.write_bytes(content)
    (tmp_path / "tailrace.toml").write_text(
        '[source]\nurl = "mysql://h"\npassword-file = "password"\n[kafka]\nsecurity-protocol = "sasl_ssl"\n'
        'sasl-username = "me"\nsasl-password-file = "password"\n'
    )
    config = load(tmp_path / "tailrace.toml")
    assert config.source is not None
    for read in (lambda: server_url(config.source), lambda: kafka_security(config.kafka)):
        with pytest.raises(ConfigError, match=rf"TR104: (sasl-)?password-file .*{why}"):
            read()


def test_a_password_file_of_another_editor(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes("\ufeffpä ss\r\n".encode())
    (tmp_path / "tailrace.toml").write_text('[source]\nurl = "mysql://h"\npassword-file = "password"\n')
    source = load(tmp_path / "tailrace.toml").source
    assert source is not None
    assert server_url(source).password == "pä ss"


@pytest.mark.parametrize(
    "text",
    [
        '[relay]\ndir = "a\\u0000b"\n',
        '[source]\nurl = "mysql://h/\\u0000"\n',
        '[source]\nurl = "mysql://h"\npassword = "a\\u0000b"\n',
        '[kafka]\nbootstrap-servers = "h\\u0000:1"\n',
        '[channel.a.target]\nurl = "mysql://h"\npassword-file = "a\\u0000b"\n',
    ],
)
def test_a_nul_is_refused_wherever_it_is(tmp_path: Path, text: str) -> None:
    (tmp_path / "tailrace.toml").write_text(text)
    with pytest.raises(ConfigError, match="TR103"):
        load(tmp_path / "tailrace.toml")


def test_files_in_a_url_are_named_from_the_configuration_on(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text(
        '[source]\nurl = "mysql://h/?ssl-ca=ca.pem"\n[channel.a.target]\nurl = "mysql://h/?ssl-ca=/x/ca.pem"\n'
    )
    config = load(tmp_path / "tailrace.toml")
    assert config.source is not None
    assert server_url(config.source).params == {"ssl-ca": str(tmp_path / "ca.pem")}
    target = config.for_channel("a").target
    assert target is not None
    assert server_url(target).params == {"ssl-ca": "/x/ca.pem"}


@pytest.mark.parametrize(
    "servers", ["h", "h:9092", "a:1, b:2,", "[::1]:9092", "SASL_SSL://h:1", "kafka_1.x-y:65535"]
)
def test_addresses_of_brokers(tmp_path: Path, servers: str) -> None:
    assert _load(tmp_path, f'[kafka]\nbootstrap-servers = "{servers}"').kafka.bootstrap_servers == servers


@pytest.mark.parametrize("servers", ["h:x", "h:0", "h:65536", "a:1,b:", "::1", "a b", "h:1/x", " "])
def test_addresses_that_no_broker_has(tmp_path: Path, servers: str) -> None:
    with pytest.raises(ConfigError, match="TR103"):
        _load(tmp_path, f'[kafka]\nbootstrap-servers = "{servers}"')


@pytest.mark.parametrize("name", ["../x", "..", ".x", "-x", "", "a/b", "a b", "x" * 65, "x\n", "ü"])
def test_names_that_become_files_are_names(name: str, tmp_path: Path) -> None:
    config = _load(tmp_path, "")
    with pytest.raises(ConfigError, match="TR103"):
        config.for_channel(name)
    for text in (
        f"[channel.{json.dumps(name)}]\nsafe-mode = true\n",
        f"[consumer]\nchannel = {json.dumps(name)}\n",
        f"[kafka]\nprefix = {json.dumps(name * 4)}\n",
    ):
        with pytest.raises(ConfigError, match="TR103"):
            _load(tmp_path, text)
