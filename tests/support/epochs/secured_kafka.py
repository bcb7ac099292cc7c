"""A broker that requires TLS and a login; it also has the open listener that its start needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from compose.kafka import Kafka
from tailrace.artifacts.maven import java

USER, PASSWORD = "tailrace", 'se"cret\\1'
_STORE_PASSWORD = "changeit"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class SecuredKafka(Kafka):
    """``secured`` is the address of the listener with SASL_SSL, ``ca`` the certificate to trust."""

    @property
    def secured(self) -> str:
        return f"localhost:{self._kept_port('secured-port')}"

    @property
    def ca(self) -> Path:
        return self.directory / "ca.pem"

    def _write_settings(self, directory: Path, data: Path) -> None:
        store = directory / "broker.p12"
        if not store.exists():
            _make_certificate(store, self.ca)
        super()._write_settings(directory, data)
        protocols = "PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL,CONTROLLER:PLAINTEXT"
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},SECURED://{self.secured}"
        controller = f"CONTROLLER://127.0.0.1:{self._kept_port('controller-port')}"
        user = f'user_{USER}="{_escaped(PASSWORD)}"'
        settings = {
            "listeners": f"{listeners},{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": protocols,
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secured.plain.sasl.jaas.config": f"{_LOGIN} {user};",
            "listener.name.secured.ssl.keystore.type": "PKCS12",
            "listener.name.secured.ssl.keystore.location": str(store),
            "listener.name.secured.ssl.keystore.password": _STORE_PASSWORD,
        }
        with (directory / "server.properties").open("a") as file:
            # A backslash is an escape in such a file too.
            file.writelines(f"{name}={value}\n".replace("\\", "\\\\") for name, value in settings.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _make_certificate(store: Path, ca: Path) -> None:
    """Make a self-signed certificate with Java's keytool."""
    keytool = Path(java()).resolve().with_name("keytool")
    secret = ["-keystore", str(store), "-storepass", _STORE_PASSWORD, "-alias", "broker"]
    names = ["-dname", "CN=localhost", "-ext", "SAN=dns:localhost,ip:127.0.0.1"]
    make = ["-genkeypair", "-keyalg", "RSA", "-storetype", "PKCS12", "-validity", "2", *names]
    export = ["-exportcert", "-rfc", "-file", str(ca)]
    for arguments in (make, export):
        subprocess.run([keytool, *arguments, *secret], check=True, capture_output=True)
