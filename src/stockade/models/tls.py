"""The one TLS context of a process: building it costs 74 ms."""

import functools
import os
import ssl

from stockade.core.errors import ModelUnavailable

_ELSEWHERE = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
              "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem")  # fmt: skip
"""Where distributions keep them: a Python that was built elsewhere does not look there."""


@functools.cache
def tls_context() -> ssl.SSLContext:
    """With the certificates that this machine trusts. ModelUnavailable when they cannot be read."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        context = ssl.create_default_context(cafile=file or None, capath=folder or None)
        usual = ssl.get_default_verify_paths()
        if not (file or folder or usual.cafile or usual.capath):
            found = next(filter(os.path.isfile, _ELSEWHERE), None)
            context.load_verify_locations(found)
    except (OSError, TypeError) as error:
        words = getattr(error, "strerror", None) or "there are none"
        raise ModelUnavailable(
            f"the certificates of this machine cannot be read: {words}", "check SSL_CERT_FILE"
        ) from error
    return context
