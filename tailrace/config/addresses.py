"""The addresses of upstream, downstream and Kafka, with passwords from environment, file or url."""

from __future__ import annotations

import socket
import zlib
from pathlib import Path

from pydantic import SecretStr

from schemas.access.kafka_security import KafkaSecurity
from schemas.access.server_url import ServerUrl
from schemas.errors import ConfigError
from spark_consumer.rules.config import LogAddress
from tailrace.config.listen import ListenAddress
from tailrace.config.model import FILES, Config, Kafka, Metrics, Serve, Server

_LONGEST_PASSWORD = 1 << 16  # bytes
_PASSWORD_HINT = "the file must contain only the password, as one line of UTF-8 text"


def source_url(config: Config) -> ServerUrl:
    """Return the upstream's address with its password. Raises ConfigError if there is none."""
    if config.source is None:
        raise _missing("source")
    return server_url(config.source)


def target_url(config: Config) -> ServerUrl:
    """Return the downstream's address with its password. Raises ConfigError if there is none or it is a folder."""
    if config.target is None:
        raise _missing("target")
    if files_target(config) is not None:
        raise ConfigError(
            "TR107",
            f"the command needs a server, and [target] is a folder of change files: {config.target.url}",
            hint="name a channel whose target is a server; to start a folder again, empty it",
        )
    return server_url(config.target)


def files_target(config: Config) -> Path | None:
    """Return the target's folder of change files; None if the target is a server."""
    url = config.target.url if config.target is not None else ""
    return Path(url.removeprefix(FILES)) if url.startswith(FILES) else None


def log_address(kafka: Kafka) -> LogAddress:
    """Return the address of the epoch log."""
    return LogAddress(kafka.bootstrap_servers, kafka.prefix, kafka_security=kafka_security(kafka))


def targets(config: Config) -> list[Config]:
    """Return a configuration for each different target, the common one first."""
    own = [config.for_channel(name) for name, channel in config.channel.items() if channel.target is not None]
    found: dict[str, Config] = {}
    for one in [config, *own] if config.target is not None or not own else own:
        found.setdefault(one.target.url if one.target is not None else "", one)
    return list(found.values())


def server_channels(config: Config) -> list[str]:
    """Return the configured channels and the default channel, without those whose target is a folder."""
    names = dict.fromkeys([config.consumer.channel, *config.channel])
    own = {name: config.for_channel(name) for name in names}
    return [name for name, one in own.items() if one.target is not None and files_target(one) is None]


def server_id(config: Config) -> int:
    """Return the configured replica id, or one that is derived from host name and prefix."""
    if config.source is not None and config.source.server_id is not None:
        return config.source.server_id
    name = f"{socket.gethostname()}/{config.kafka.prefix}".encode()
    # From the upper half of the range, since servers usually have low numbers.
    return (1 << 31) | zlib.crc32(name) >> 1


def server_url(server: Server) -> ServerUrl:
    """Return a server's address with its password, from environment or file, else from the url."""
    return ServerUrl.parse(server.url, _secret("password-file", server.password, server.password_file))


def kafka_security(kafka: Kafka) -> KafkaSecurity:
    """Return the brokers' security settings with the password from environment or file. Raises ConfigError."""
    password = _secret("sasl-password-file", kafka.sasl_password, kafka.sasl_password_file) or ""
    return KafkaSecurity(
        protocol=kafka.security_protocol,
        mechanism=kafka.sasl_mechanism,
        username=kafka.sasl_username,
        password=password,
        ca=kafka.ssl_ca,
        certificate=kafka.ssl_certificate,
        key=kafka.ssl_key,
        key_password=kafka.ssl_key_password.get_secret_value() if kafka.ssl_key_password else "",
    )


def token_of(section: Serve | Metrics) -> str | None:
    """Return the configured token of the page or of /metrics; None if there is none. Raises ConfigError."""
    return _secret("token-file", section.token, section.token_file)


def metrics_address(
    config: Config, channel: str | None = None, *, validates: bool = False
) -> ListenAddress | None:
    """Return where a process serves its metrics; None if it does not.

    The producer has the configured port. The default channel's consumer has the next one, then the configured
    channels in the order of their names, and after these any other channel. The validations follow in the same order.

    Args:
        channel: of a consumer or a validation; None for the producer.
        validates: whether it is a validation.

    Raises:
        ConfigError: no port is left for it.
    """
    if not config.metrics.listen:
        return None
    first, main = ListenAddress.parse(config.metrics.listen), config.consumer.channel
    names = [main, *sorted(set(config.channel) - {main})]
    place = 0
    if channel is not None:
        place = (names.index(channel) if channel in names else len(names)) + 1
        place += len(names) + 1 if validates else 0
    try:
        return first.later(place)
    except ValueError:
        raise ConfigError(
            "TR103",
            f"[metrics] listen is {first}, and no port is left for channel {channel}",
            hint="choose a lower port, or an empty address for no metrics",
        ) from None


def _secret(field: str, value: SecretStr | None, file: Path | None) -> str | None:
    """Return a secret as it is configured, else from its file; None if there is neither."""
    if value is not None:
        return value.get_secret_value()
    return None if file is None else _password(field, file)


def _password(field: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            read = file.read(_LONGEST_PASSWORD + 1)
            text = read.decode("utf-8-sig").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError("TR104", f"{field} {path} cannot be read: {reason}", hint=_PASSWORD_HINT) from None
    if not text or len(read) > _LONGEST_PASSWORD or any(sign in text for sign in "\0\r\n"):
        what = (
            "is empty"
            if not text
            else "contains more than a password: another line, a NUL character, or over 64 KiB"
        )
        raise ConfigError("TR104", f"{field} {path} {what}", hint=_PASSWORD_HINT)
    return text


def _missing(section: str) -> ConfigError:
    return ConfigError(
        "TR103",
        f"[{section}] url is missing",
        hint=f"add it to the file, or set TAILRACE_{section.upper()}_URL",
    )
