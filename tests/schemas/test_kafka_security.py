"""How settings for a secured Kafka reach librdkafka and Java, and stay out of every text."""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import cloudpickle

from schemas.access.kafka_security import FIRST_ATTEMPT, OPEN, KafkaSecurity, Refusal, metadata
from schemas.access.server_url import ServerUrl
from schemas.errors import ConfigError, LogError
from spark_consumer.epochs.fetch import TopicReader
from spark_consumer.rows.reader import read_range
from spark_consumer.rules.config import ConsumerConfig
from tailrace.config.addresses import kafka_security
from tailrace.config.file import load
from tailrace.config.text import effective_toml

LOGIN = KafkaSecurity("sasl_ssl", "PLAIN", "me", 'a"b\\c')


def test_a_kafka_that_asks_for_nothing_gets_nothing() -> None:
    assert OPEN.librdkafka() == OPEN.java() == {}


def test_a_login() -> None:
    assert LOGIN.librdkafka() == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": 'a"b\\c',
    }
    java = LOGIN.java()
    assert (java["security.protocol"], java["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    assert java["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="me" password="${env:TAILRACE_KAFKA_JAAS_PASSWORD}";'
    )
    assert LOGIN.environment() == {
        "TAILRACE_KAFKA_SASL_PASSWORD": 'a"b\\c',
        "TAILRACE_KAFKA_JAAS_PASSWORD": 'a\\"b\\\\c',
    }


def test_certificates(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("ca.pem", "mine.pem", "key.pem")]
    for path in files:
        path.write_text(path.name)
    security = KafkaSecurity("ssl", ca=files[0], certificate=files[1], key=files[2], key_password="k")
    assert security.librdkafka() == {
        "security.protocol": "ssl",
        "ssl.ca.location": str(files[0]),
        "ssl.certificate.location": str(files[1]),
        "ssl.key.location": str(files[2]),
        "ssl.key.password": "k",
    }
    java = security.java()
    assert {name: value for name, value in java.items() if not name.startswith("config.")} == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "mine.pem",
        "ssl.keystore.key": f"${{folder:{tmp_path}:key.pem}}",
        "ssl.key.password": "${env:TAILRACE_KAFKA_SSL_KEY_PASSWORD}",
    }


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"/no/such\.pem cannot be read"):
        KafkaSecurity("ssl", ca=Path("/no/such.pem")).java()


def test_no_text_holds_a_password() -> None:
    assert 'a"b' not in repr(LOGIN)
    assert "hidden" not in repr(KafkaSecurity("ssl", key_password="hidden"))


def test_a_pickle_leaves_passwords_behind_and_finds_them_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = ServerUrl.parse("mysql://me:hidden%20one@h:1/?ssl-mode=required")
    security = KafkaSecurity("sasl_ssl", "PLAIN", "me", "hidden two", key_password="hidden three")
    config = ConsumerConfig("b:1", "p", target, kafka_security=security)
    source = TopicReader("b:1", "p.rows", "g", security)
    for pickled in (pickle.dumps, cloudpickle.dumps):
        packed = [pickled(one) for one in (target, config, partial(read_range, source), OPEN)]
        assert not any(b"hidden" in one for one in packed)
    with pytest.raises(ConfigError, match=r"TR109: .*TAILRACE_TARGET_PASSWORD"):
        pickle.loads(packed[0])
    for name, secret in config.secrets.items():
        monkeypatch.setenv(name, secret)
    assert [pickle.loads(one) for one in (*packed[:2], packed[3])] == [target, config, OPEN]
    assert pickle.loads(packed[2]).args == (source,)


def test_a_key_that_java_cannot_name_is_refused(tmp_path: Path) -> None:
    for name in ("ca.pem", "mine.pem", "key:1.pem"):
        (tmp_path / name).write_text(name)
    with pytest.raises(ConfigError, match=r"TR104: .*key:1\.pem"):
        KafkaSecurity("ssl", certificate=tmp_path / "mine.pem", key=tmp_path / "key:1.pem").java()


class _Error:
    """As librdkafka's."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.str = lambda: name, lambda: text


class _Broker:
    """Answers the third question; tells of ``met`` when it is polled."""

    def __init__(self, refusal: Refusal, met: _Error | None = None) -> None:
        self.asked: list[float] = []
        self._refusal, self._met = refusal, met

    def ask(self, seconds: float) -> str:
        self.asked.append(seconds)
        if len(self.asked) == 3:
            return "there"
        time.sleep(seconds)
        raise OSError("timed out")

    def poll(self) -> None:
        if self._met is not None:
            self._refusal(self._met)


def test_a_silent_broker_is_asked_again_and_a_refusal_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.append(clock[-1] + seconds))
    monkeypatch.setattr(time, "monotonic", lambda: clock[-1])
    refusal = Refusal("b:1")
    silent = _Broker(refusal, _Error("_ALL_BROKERS_DOWN", "1/1 brokers are down"))
    assert refusal.ends(silent.ask, 10.0, silent.poll) == "there"
    assert silent.asked == [FIRST_ATTEMPT, 2 * FIRST_ATTEMPT, 4 * FIRST_ATTEMPT]
    silent = _Broker(refusal)
    with pytest.raises(OSError, match="timed out"):
        refusal.ends(silent.ask, 1.0, silent.poll)
    assert silent.asked == [FIRST_ATTEMPT, 1.0 - FIRST_ATTEMPT]
    silent = _Broker(refusal)
    assert refusal.ends(silent.ask, 10.0, silent.poll, first=0.25) == "there"
    assert silent.asked == [0.25, 0.5, 1.0]
    said = "sasl_ssl://b:1/bootstrap: SASL authentication error: Invalid username (after 302ms in state AUTH_REQ)"
    strict = _Broker(refusal, _Error("_AUTHENTICATION", said))
    with pytest.raises(
        LogError, match=r"TR508: Kafka at b:1 .*: SASL .* error: Invalid username Hint: check sasl"
    ):
        refusal.ends(strict.ask, 10.0, strict.poll)
    assert strict.asked == [FIRST_ATTEMPT]
    refusal.forget()
    assert refusal.error is None


def _load(folder: Path, text: str) -> KafkaSecurity:
    (folder / "tailrace.toml").write_text(f"[kafka]\n{text}\n")
    config = load(folder / "tailrace.toml")
    assert "hidden" not in effective_toml(config)
    return kafka_security(config.kafka)


@pytest.mark.parametrize("answers", [True, False])
def test_a_client_has_no_question_open_when_it_ends(answers: bool) -> None:
    """librdkafka crashes on the answer to one that comes meanwhile."""
    described: Future[None] = Future()

    def describe_cluster(request_timeout: float) -> Future[None]:
        threading.Timer(request_timeout / 4, described.set_result, [None]).start()
        return described

    def list_topics(timeout: float) -> str:
        if not answers:
            raise LogError("TR500", "no answer")
        return "topics"

    admin = SimpleNamespace(
        describe_cluster=describe_cluster, list_topics=list_topics, poll=lambda seconds: None
    )
    if answers:
        assert metadata(admin, Refusal("h:1"), 1) == "topics"
    else:
        with pytest.raises(LogError, match="TR500"):
            metadata(admin, Refusal("h:1"), 1)
    assert described.done()


def test_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _load(tmp_path, "") == OPEN
    sasl = 'security-protocol = "sasl_plaintext"\nsasl-username = "me"\n'
    assert _load(tmp_path, sasl + 'sasl-password = "hidden"').password == "hidden"
    (tmp_path / "secret").write_text("hidden too\n")
    assert _load(tmp_path, sasl + 'sasl-password-file = "secret"').password == "hidden too"
    monkeypatch.setenv("TAILRACE_KAFKA_SASL_PASSWORD", "hidden in the environment")
    assert _load(tmp_path, sasl).password == "hidden in the environment"
    assert _load(tmp_path, 'security-protocol = "ssl"\nssl-ca = "ca.pem"').ca == tmp_path / "ca.pem"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('security-protocol = "sasl_ssl"', "needs sasl-username"),
        ('sasl-username = "me"', "needs security-protocol"),
        ('security-protocol = "ssl"\nssl-key = "k"', "must be set together"),
        ('security-protocol = "tls"', "plaintext"),
    ],
)
def test_what_does_not_fit_together(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        _load(tmp_path, text)
