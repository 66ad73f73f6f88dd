"""The server's certificate: the user's own, or one that nobody vouches for but its fingerprint."""

import datetime
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stockade.core.errors import UsageError
from stockade.paths import state_dir, write_whole

_DAYS = 825


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM, the names it is for, and of one of ours the fingerprint (SHA-256, hex in pairs)."""

    cert: Path
    key: Path
    names: frozenset[str]
    fingerprint: str | None = None


def given(cert: Path, key: Path) -> Certificate:
    """UsageError where these are no certificate and its key."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
        found = x509.load_pem_x509_certificate(cert.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{cert} and {key} are no certificate and its key: {error}", "both are PEM files") from None
    return Certificate(cert, key, _names(found))


def self_signed(host: str) -> Certificate:
    """The same as last time, so that its fingerprint stays, where it is for `host` and not about to end."""
    folder = state_dir() / "serve"
    cert, key = folder / "cert.pem", folder / "key.pem"
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=30)
    try:
        found = x509.load_pem_x509_certificate(cert.read_bytes())
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
        fits = host.lower() in _names(found) and found.not_valid_after_utc > soon
    except (OSError, ValueError):
        fits = False
    if not fits:
        found = _make(host, cert, key)
    fingerprint = found.fingerprint(hashes.SHA256()).hex(":").upper()
    return Certificate(cert, key, _names(found), fingerprint)


def _make(host: str, cert: Path, key: Path) -> x509.Certificate:
    private, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stockade serve")])
    names = dict.fromkeys((host.lower(), socket.gethostname().lower(), "localhost", "127.0.0.1", "::1"))
    made = (
        x509.CertificateBuilder(subject, subject, private.public_key(), x509.random_serial_number(), now,
                                now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )  # fmt: skip
    text = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_whole(key, text, private=True)
    write_whole(cert, made.public_bytes(serialization.Encoding.PEM), private=True)
    return made


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names(found: x509.Certificate) -> frozenset[str]:
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return frozenset({*map(str.lower, names.get_values_for_type(x509.DNSName)), *addresses})
