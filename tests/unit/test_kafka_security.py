"""How settings for a secured Kafka reach librdkafka and Java, and stay out of every text."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import ConfigError
from schemas.kafka_security import OPEN, KafkaSecurity
from tailrace.config_file import kafka_security, load
from tailrace.config_text import effective_toml

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
        'username="me" password="a\\"b\\\\c";'
    )


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
    assert security.java() == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "mine.pem",
        "ssl.keystore.key": "key.pem",
        "ssl.key.password": "k",
    }


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"/no/such\.pem cannot be read"):
        KafkaSecurity("ssl", ca=Path("/no/such.pem")).java()


def test_no_text_holds_a_password() -> None:
    assert 'a"b' not in repr(LOGIN)
    assert "hidden" not in repr(KafkaSecurity("ssl", key_password="hidden"))


def _load(folder: Path, text: str) -> KafkaSecurity:
    (folder / "tailrace.toml").write_text(f"[kafka]\n{text}\n")
    config = load(folder / "tailrace.toml")
    assert "hidden" not in effective_toml(config)
    return kafka_security(config.kafka)


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
        ('security-protocol = "ssl"\nssl-key = "k"', "belong together"),
        ('security-protocol = "tls"', "plaintext"),
    ],
)
def test_what_does_not_fit_together(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        _load(tmp_path, text)
