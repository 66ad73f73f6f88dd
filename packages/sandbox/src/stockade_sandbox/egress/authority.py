"""A certificate authority for one sandbox: TLS to its credentials' hosts ends at the proxy. Its key is in the memory of
this process alone, and by its name constraints it speaks for those hosts only, whoever trusts it.
"""

import ipaddress
import os
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 7
_EARLIER = timedelta(hours=1)
"""Clocks of guests may be late."""


class Authority:
    """`hosts` in lower case. `certificate` is its own, as PEM."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stockade: one sandbox's credentials")])
        self._contexts = dict[str, ssl.SSLContext]()
        constraints = x509.NameConstraints([x509.DNSName(host) for host in hosts], [_nothing(4), _nothing(6)])
        usage = x509.KeyUsage(False, False, False, False, False, True, False, False, False)
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(usage, critical=True).add_extension(constraints, critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.certificate = self._certificate.public_bytes(serialization.Encoding.PEM)

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder(self._name, name, key, x509.random_serial_number())
            .not_valid_before(now - _EARLIER)
            .not_valid_after(now + timedelta(days=DAYS))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    def context(self, host: str) -> ssl.SSLContext:
        """A server's that is `host`, for HTTP/1.1. `ssl` takes a key only from a file, so there is one in memory."""
        if host not in self._contexts:
            key = ec.generate_private_key(ec.SECP256R1())
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
            builder = self._builder(name, key.public_key())
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
            builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
            leaf = builder.add_extension(usage, critical=False).sign(self._key, hashes.SHA256())
            secret = key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_alpn_protocols(["http/1.1"])
            _load(context, secret + leaf.public_bytes(serialization.Encoding.PEM))
            self._contexts[host] = context
        return self._contexts[host]


def _nothing(version: int) -> x509.IPAddress:
    """Every address, which is to be excluded: this authority speaks for names."""
    return x509.IPAddress(ipaddress.ip_network("0.0.0.0/0" if version == 4 else "::/0"))


def _load(context: ssl.SSLContext, chain: bytes) -> None:
    file = os.memfd_create("leaf", os.MFD_CLOEXEC)
    try:
        os.write(file, chain)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
