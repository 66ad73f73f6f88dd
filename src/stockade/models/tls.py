"""The one TLS context of a process: building it costs 74 ms."""

import functools
import ssl

import httpx2

from stockade.core.errors import ModelUnavailable


@functools.cache
def tls_context() -> ssl.SSLContext:
    """With the certificates that this machine trusts. ModelUnavailable when they cannot be read."""
    try:
        return httpx2.create_ssl_context()
    except OSError as error:
        raise ModelUnavailable(
            f"the certificates of this machine cannot be read: {error.strerror or error}", "check SSL_CERT_FILE"
        ) from error
