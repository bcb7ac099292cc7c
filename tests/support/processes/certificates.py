"""Makes an authority, and valid and invalid certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    """An authority; ``pem`` is the file of its certificate."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self.pem = folder / f"{name}.pem"
        basic = x509.BasicConstraints(ca=True, path_length=None)
        made = _begun(self._name, self._name, self._key.public_key()).add_extension(basic, critical=True)
        _write(self.pem, made.sign(self._key, hashes.SHA256()))

    def alone(self) -> tuple[Path, Path]:
        """Return the files of the authority's own certificate and key."""
        key = self.pem.with_suffix(".key")
        _write_key(key, self._key)
        return self.pem, key

    def sign(self, name: str, *, days: int = 2, host: str = "localhost") -> tuple[Path, Path]:
        """Sign a certificate that is valid for some days, and return its file and its key's."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(host)]
        if host == "localhost":
            names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        made = _begun(_named(name), self._name, key.public_key(), days)
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        pem, pem_key = self.folder / f"{name}.pem", self.folder / f"{name}-key.pem"
        _write(pem, made.sign(self._key, hashes.SHA256()))
        _write_key(pem_key, key)
        return pem, pem_key


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int = 2
) -> x509.CertificateBuilder:
    end = datetime.datetime.now(datetime.UTC) + days * _DAY
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(end - 9 * _DAY).not_valid_after(end)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL)
    path.write_bytes(key.private_bytes(*form, serialization.NoEncryption()))


def _write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
