"""Where upstream, downstream and Kafka are, with the passwords of environment, file or url."""

from __future__ import annotations

import socket
import zlib
from pathlib import Path

from schemas.access.kafka_security import KafkaSecurity
from schemas.access.server_url import ServerUrl
from schemas.errors import ConfigError
from spark_consumer.rules.config import LogAddress
from tailrace.config.model import FILES, Config, Kafka, Server

_LONGEST_PASSWORD = 1 << 16  # bytes
_PASSWORD_HINT = "it has to hold the password and nothing else, as UTF-8 text in one line"


def source_url(config: Config) -> ServerUrl:
    """The upstream's address with its password. Raises ConfigError if there is none."""
    if config.source is None:
        raise _missing("source")
    return server_url(config.source)


def target_url(config: Config) -> ServerUrl:
    """The downstream's address with its password. Raises ConfigError if there is none, or it is no server."""
    if config.target is None:
        raise _missing("target")
    if files_target(config) is not None:
        raise ConfigError(
            "TR107",
            f"this needs a server, and [target] is a folder of change files: {config.target.url}",
            hint="name a channel whose target is a server, if there is one; a folder is begun anew by emptying it",
        )
    return server_url(config.target)


def files_target(config: Config) -> Path | None:
    """The folder of change files that is the target; None if it is a server."""
    url = config.target.url if config.target is not None else ""
    return Path(url.removeprefix(FILES)) if url.startswith(FILES) else None


def log_address(kafka: Kafka) -> LogAddress:
    """Where the epoch log is."""
    return LogAddress(kafka.bootstrap_servers, kafka.prefix, kafka_security=kafka_security(kafka))


def targets(config: Config) -> list[Config]:
    """A configuration for each target, the common one first; a channel's own only if no other has it."""
    own = [config.for_channel(name) for name, said in config.channel.items() if said.target is not None]
    found: dict[str, Config] = {}
    for one in [config, *own] if config.target is not None or not own else own:
        found.setdefault(one.target.url if one.target is not None else "", one)
    return list(found.values())


def server_channels(config: Config) -> list[str]:
    """The channels of the configuration whose targets are servers: those with a section, and the default one."""
    names = dict.fromkeys([config.consumer.channel, *config.channel])
    own = {name: config.for_channel(name) for name in names}
    return [name for name, one in own.items() if one.target is not None and files_target(one) is None]


def server_id(config: Config) -> int:
    """The replica's id: as configured, else one that stays the same for this host and prefix."""
    if config.source is not None and config.source.server_id is not None:
        return config.source.server_id
    name = f"{socket.gethostname()}/{config.kafka.prefix}".encode()
    # The upper half of the range: people number their servers from below.
    return (1 << 31) | zlib.crc32(name) >> 1


def server_url(server: Server) -> ServerUrl:
    """The server's address with its password: that of environment or file, else the url's."""
    if server.password is not None:
        return ServerUrl.parse(server.url, server.password.get_secret_value())
    if server.password_file is not None:
        return ServerUrl.parse(server.url, _password("password-file", server.password_file))
    return ServerUrl.parse(server.url)


def kafka_security(kafka: Kafka) -> KafkaSecurity:
    """How the brokers are reached, with the password of environment or file. Raises ConfigError."""
    password = kafka.sasl_password.get_secret_value() if kafka.sasl_password else ""
    if kafka.sasl_password is None and kafka.sasl_password_file is not None:
        password = _password("sasl-password-file", kafka.sasl_password_file)
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


def _password(field: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            read = file.read(_LONGEST_PASSWORD + 1)
            text = read.decode("utf-8-sig").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError("TR104", f"{field} {path} cannot be read: {reason}", hint=_PASSWORD_HINT) from None
    if not text or len(read) > _LONGEST_PASSWORD or any(sign in text for sign in "\0\r\n"):
        what = "is empty" if not text else "holds more than a password: another line, or a NUL character"
        raise ConfigError("TR104", f"{field} {path} {what}", hint=_PASSWORD_HINT)
    return text


def _missing(section: str) -> ConfigError:
    return ConfigError(
        "TR103",
        f"[{section}] url is missing",
        hint=f"add it to the file, or set TAILRACE_{section.upper()}_URL",
    )
