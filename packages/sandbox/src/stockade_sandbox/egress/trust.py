"""Whom programs inside trust: this machine's authorities, those that the user names, and a sandbox's own."""

import os
import re
import ssl
from dataclasses import replace
from os.path import expanduser
from pathlib import Path

from stockade_sandbox.errors import UsageError
from stockade_sandbox.policy import Policy

BUNDLE = "/credentials/ca.pem"
TRUST = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "PIP_CERT",
         "NPM_CONFIG_CAFILE", "CARGO_HTTP_CAINFO", "DENO_CERT", "AWS_CA_BUNDLE", "CODEX_CA_CERTIFICATE",
         "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH")  # fmt: skip
"""What programs read where to find the certificates of those they trust."""
MAX_BYTES = 1 << 20
_ROOTS = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
          "/etc/ssl/cert.pem")  # fmt: skip
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[\sA-Za-z0-9+/=]+-----END CERTIFICATE-----")
_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----")


def system_roots() -> bytes:
    """Whom this machine trusts, as PEM; empty where that stands in no file."""
    named = ssl.get_default_verify_paths()
    for path in (os.environ.get(named.openssl_cafile_env), named.cafile, *_ROOTS):
        if path and Path(path).is_file():
            return Path(path).read_bytes().rstrip() + b"\n"
    return b""


def read_authorities(path: str) -> str:
    """The certificates of a file, as PEM and nothing else of it. UsageError, a line, for one that has none to trust."""

    def unusable(why: str, hint: str = "name a file of certificates in PEM") -> UsageError:
        return UsageError(f"-o ca={path}: {why}", hint)

    try:
        with open(os.open(expanduser(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise unusable(getattr(error, "strerror", None) or "there is no such file") from None
    text = data.decode("latin-1")
    if len(data) > MAX_BYTES:
        raise unusable(f"larger than {MAX_BYTES >> 20} MiB")
    if _KEY.search(text):
        raise unusable("it holds a private key, which would be copied in", "name a file that has certificates only")
    certificates = _CERTIFICATE.findall(text)
    if not certificates:
        raise unusable("there is no certificate in it")
    for number, one in enumerate(certificates, 1):
        try:
            trusting((one,))
        except ssl.SSLError as error:
            raise unusable(f"certificate {number} cannot be read: {error.reason or 'malformed'}") from None
    return "".join(f"{one}\n" for one in certificates)


def trusting(authorities: tuple[str, ...], context: ssl.SSLContext | None = None) -> ssl.SSLContext:
    """`context`, by default one that trusts nobody, with these in PEM trusted as well."""
    context = context or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for one in authorities:
        context.load_verify_locations(cadata=one)
    return context


def put_trust(policy: Policy, own: bytes = b"") -> Policy:
    """With all of them as a file inside, `own` among them, and the variables that name it; what the policy's
    environment says already stays. Blocks.
    """
    bundle = system_roots() + "".join(policy.authorities).encode() + own
    return replace(
        policy,
        files={**policy.files, BUNDLE: bundle.decode("utf-8", "replace")},
        environment={**dict.fromkeys(TRUST, BUNDLE), **policy.environment},
    )
