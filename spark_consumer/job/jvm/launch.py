"""Starts Spark's JVM, and protects the connections to it.

Its settings are passed in a private file, not on the command line; passwords are passed in its environment. Both ends
of py4j require its token. Spark's temporary files, with the sockets of its Python workers, are in a folder that only
this user can read.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from schemas.access.private_files import opener
from spark_consumer.job.jvm.ignored_signals import ignoring_signals
from spark_consumer.job.jvm.process import JvmStart

_POLL = 0.02
# The kernel allows 108 bytes for a socket's path; Spark's names need 43 of them.
_LONGEST_FOLDER = 64
_LONGEST_OF_A_STRANGER = 1024  # bytes
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# py4j's own default.
_IDLE_CONNECTION_S = 30


class JvmEnded(Exception):
    """The JVM ended before a connection could be made.

    Attributes:
        code: its exit code; negative for a signal.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def launch(settings: Mapping[str, str], secrets: Mapping[str, str], log: Path, start: JvmStart) -> Any:
    """Start a JVM with Spark. Returns py4j's gateway to it, which has the process as ``proc``.

    Args:
        settings: Spark's properties.
        secrets: environment variables in addition to those of this process.
        log: the file for the output of the JVM and the Python workers.
        start: is told the process.

    Raises:
        JvmEnded: it did not start; the log may have the reason.
    """
    folder = _private_folder()
    java_options = f"-Djava.io.tmpdir={folder.name} {settings.get(_JAVA_OPTIONS, '')}".strip()
    properties, told = Path(folder.name, "spark.properties"), Path(folder.name, "gateway")
    _write_properties(properties, {**settings, _JAVA_OPTIONS: java_options})
    command = [str(Path(_find_spark_home(), "bin", "spark-submit")), "--properties-file", str(properties)]
    with open(log, "ab", opener=opener) as sink:
        process = subprocess.Popen(
            ignoring_signals([*command, "--load-spark-defaults", "pyspark-shell"]),
            stdin=subprocess.PIPE,  # it ends with this process
            stdout=sink,
            stderr=sink,
            env={
                **os.environ,
                **secrets,
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
            },
            umask=0o077,
            start_new_session=True,
        )
    start.began(process)
    while not told.exists():
        if (code := process.poll()) is not None:
            raise JvmEnded(code)
        time.sleep(_POLL)
    with told.open("rb") as file:
        port, token = read_int(file), UTF8Deserializer().loads(file)
    told.unlink()
    properties.unlink()
    with _variables({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": token}):
        gateway = launch_gateway()
    # The folder is deleted with the gateway.
    gateway.proc, gateway.folder = process, folder
    _guard_callbacks(gateway, token)
    return gateway


def _private_folder() -> tempfile.TemporaryDirectory[str]:
    """Create a folder for this user only, whose path is short enough for sockets in it."""
    made = tempfile.TemporaryDirectory(prefix="tailrace-", ignore_cleanup_errors=True)
    if len(made.name) > _LONGEST_FOLDER:
        made = tempfile.TemporaryDirectory(prefix="tailrace-", dir="/tmp", ignore_cleanup_errors=True)
    return made


def _guard_callbacks(gateway: Any, token: str) -> None:
    """Make the server for calls from Java require the token, and Java's client send it.

    Java's client is created before the server's port is known. py4j then creates another one with the port and without
    the token (``py4j.PythonClient.copyWith``), so that client is replaced too.
    """
    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)
    callbacks = gateway._callback_server
    connect = callbacks._create_connection
    callbacks._create_connection = lambda sock, stream: connect(sock, _UnauthenticatedStream(stream))
    server = JavaObject("GATEWAY_SERVER", gateway._gateway_client)
    inner, unarmed = server.getGateway(), server.getCallbackClient()
    java = gateway.jvm
    client = java.py4j.PythonClient(
        inner,
        None,
        unarmed.getPort(),
        unarmed.getAddress(),
        _IDLE_CONNECTION_S,
        java.java.util.concurrent.TimeUnit.SECONDS,
        java.javax.net.SocketFactory.getDefault(),
        server,
        True,
        0,
        token,
    )
    field = inner.getClass().getDeclaredField("cbClient")
    field.setAccessible(True)
    field.set(inner, client)


class _UnauthenticatedStream:
    """Limits the length of a connection's first three lines (the authentication)."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._unknown = stream, 3

    def readline(self) -> bytes:
        if not self._unknown:
            return bytes(self._stream.readline())
        self._unknown -= 1
        return bytes(self._stream.readline(_LONGEST_OF_A_STRANGER))

    def close(self) -> None:
        self._stream.close()


def _write_properties(path: Path, settings: Mapping[str, str]) -> None:
    with open(path, "w", opener=opener, encoding="ascii") as file:
        file.writelines(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(text: str) -> str:
    """Escape a text for a name or a value in a Java properties file."""
    return "".join(
        char if char.isascii() and (char.isalnum() or char in "._-/") else f"\\u{unit:04x}"
        for char in text
        for unit in _units(char)
    )


def _units(char: str) -> list[int]:
    data = char.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


@contextmanager
def _variables(chosen: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in chosen}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
