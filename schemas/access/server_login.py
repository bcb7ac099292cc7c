"""Logs in to a MySQL-compatible server: encryption, passwords, and the errors of a refused login.

Every connection of every part is opened here. `ssl-mode` decides on encryption and verification (docs/SECURITY.md):

1. The server's greeting shows whether it offers TLS. With ``preferred`` TLS is used if it is offered; with
   ``required`` and the stricter modes a server without TLS is refused. If the handshake fails, that is an error:
   there is no second attempt without TLS.
2. With ``verify-ca`` and ``verify-identity`` the certificate is verified before anything about the account is sent.
3. The server chooses the authentication method. Two methods would send the password in clear text; they are refused
   unless the certificate was verified or the connection is a unix socket.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemas.access.server_url import ServerUrl
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from pymysql.connections import Connection

# pymysql's error numbers: TLS is required but not offered; an unknown authentication method; one that failed.
_NO_TLS, _UNKNOWN_METHOD, _METHOD_FAILED = 2026, 2059, 2061
_PATIENCE = (
    30  # seconds for each answer until the login is complete; a server may look up the client's name first
)
# Access denied, and MySQL's "insecure transport" where require_secure_transport is on.
_DENIED = frozenset({1045, 1698, 3159, 4151})
# A handshake ends with these if the server stops or the connection breaks.
_CUT_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_VERIFIED = frozenset({"verify-ca", "verify-identity"})


def connect(url: ServerUrl, **options: Any) -> Connection[Any]:
    """Open a connection in autocommit mode; ``options`` are pymysql's and override the defaults.

    Raises:
        ConfigError: TR104, a file of the address cannot be used; TR151, the server does not support ``ssl-mode``, or
            the certificate is not valid; TR152, no authentication method that both sides support and that is safe.
        pymysql.MySQLError, OSError: the server cannot be reached, or refuses; ``login_hint`` may explain it.
    """
    import pymysql

    from schemas.access.server_connection import ServerConnection

    wanted = connection_options(url) | options
    try:
        connection = ServerConnection(**(wanted | {"read_timeout": _PATIENCE}))
    except pymysql.MySQLError as error:
        cause = getattr(error, "original_exception", None)
        number = error.args[0] if error.args else 0
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, _CUT_OFF):
            raise _no_agreement(url, cause) from error
        if number == _NO_TLS:
            raise _no_tls(url) from error
        if number in (_UNKNOWN_METHOD, _METHOD_FAILED):
            raise _no_method(url, str(error.args[-1])) from error
        raise
    connection._read_timeout = wanted.get("read_timeout")  # type: ignore[attr-defined]
    return connection


def login_hint(url: ServerUrl, error: BaseException) -> str:
    """Return how TLS may explain a refused login; empty if it cannot."""
    if not error.args or error.args[0] not in _DENIED:
        return ""
    if url.ssl_mode == "disabled":
        return "; or account or server require TLS (REQUIRE SSL, require_secure_transport), and ssl-mode is disabled"
    if "ssl-cert" not in url.params:
        return (
            "; or the account requires TLS (REQUIRE SSL) and the server offers none, or it requires a certificate"
            " (REQUIRE X509, SUBJECT, ISSUER): set ssl-cert and ssl-key in the url"
        )
    return ""


def tls_of(connection: Connection[Any]) -> str:
    """Return a connection's encryption, such as ``TLSv1.3, TLS_AES_256_GCM_SHA384``; empty if it has none."""
    sock = getattr(connection, "_sock", None)
    if not isinstance(sock, ssl.SSLSocket):
        return ""
    return f"{sock.version()}, {(sock.cipher() or ('no cipher',))[0]}"


def connection_options(url: ServerUrl) -> dict[str, Any]:
    """Build ``ServerConnection``'s arguments for an address, in autocommit mode. Raises ConfigError TR104."""
    mode = url.ssl_mode
    return {
        "host": url.host,
        "port": url.port,
        "user": url.user,
        # Bytes from the environment that are not text stay unchanged.
        "password": url.password.encode(errors="surrogateescape"),
        "charset": "utf8mb4",
        "autocommit": True,
        "connect_timeout": 10,
        # pymysql prefers TLS by default.
        "ssl_disabled": mode == "disabled",
        "ssl": None if mode in ("disabled", "preferred") else tls_context(url),
        "unix_socket": url.params.get("unix-socket"),
        "proved": mode in _VERIFIED or "unix-socket" in url.params,
    }


def tls_context(url: ServerUrl) -> ssl.SSLContext:
    """Build the TLS context: how to verify the server's certificate, and the client's own. Raises ConfigError TR104."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = url.ssl_mode == "verify-identity"
    context.verify_mode = ssl.CERT_REQUIRED if url.ssl_mode in _VERIFIED else ssl.CERT_NONE
    if url.ssl_mode in _VERIFIED:
        if (ca := url.params.get("ssl-ca")) is None:
            context.load_default_certs()
        else:
            _load(
                ca,
                "ssl-ca",
                "a PEM file of certificate authorities",
                lambda: context.load_verify_locations(ca),
            )
    if (certificate := url.params.get("ssl-cert")) is not None:
        key = url.params.get("ssl-key", certificate)
        _readable(key, "ssl-key")
        what = "a PEM file of a certificate, and ssl-key a PEM file of its key, not encrypted"
        _load(
            certificate, "ssl-cert", what, lambda: context.load_cert_chain(certificate, key, _no_passphrase)
        )
    return context


def _load(path: str, name: str, what: str, load: Any) -> None:
    _readable(path, name)
    try:
        load()
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error).partition(" (_ssl")[0]
        raise ConfigError(
            "TR104", f"{name} {path} cannot be used: {reason}", hint=f"it must be {what}"
        ) from None


def _readable(path: str, name: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = (
            "a file in a server's url must have an absolute path, or one relative to the configuration file"
        )
        raise ConfigError("TR104", f"{name} {path} cannot be read: {reason}", hint=hint) from None


def _no_passphrase() -> str:
    # OpenSSL would ask at the terminal.
    raise ValueError("the key is encrypted")


def _no_agreement(url: ServerUrl, cause: ssl.SSLError) -> ConfigError:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ConfigError(
            "TR151",
            f"the certificate of {url} is not valid: {cause.verify_message}",
            hint=_CERTIFICATE_HINTS.get(cause.verify_code, _CA_HINT),
        )
    return ConfigError(
        "TR151",
        f"no common encryption with {url}: {cause.reason or cause}",
        hint="the server may support only versions of TLS before 1.2, or require a certificate (ssl-cert, ssl-key);"
        " there was no attempt without encryption, which would need ssl-mode=disabled",
    )


_CA_HINT = "ssl-ca in the url must contain the authority that signed the server's certificate"
_CERTIFICATE_HINTS = {
    9: "it is not valid yet: compare the clocks of both machines",
    10: "it has expired: give the server a new one",
    18: f"it is self-signed: {_CA_HINT}, which is here the certificate itself",
    62: "it is for another name than the url's host: use that name, or ssl-mode=verify-ca, which checks no name",
    64: "it is for another address than the url's host: use its name, or ssl-mode=verify-ca, which checks no name",
}


def _no_tls(url: ServerUrl) -> ConfigError:
    return ConfigError(
        "TR151",
        f"{url} offers no TLS, and ssl-mode is {url.ssl_mode}",
        hint="give the server a certificate and a key (ssl_cert, ssl_key), or set ssl-mode=preferred if the network is"
        " safe from eavesdropping",
    )


def _no_method(url: ServerUrl, why: str) -> ConfigError:
    return ConfigError(
        "TR152",
        f"cannot log in at {url} as {url.user}: {why}",
        hint="a password is sent in clear text only to a server with a verified certificate (ssl-mode verify-ca or"
        " verify-identity); accounts with mysql_native_password, caching_sha2_password and sha256_password work",
    )
