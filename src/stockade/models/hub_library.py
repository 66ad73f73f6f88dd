"""huggingface_hub as it is used here: quiet, bounded, with our certificates, and the token only where that is safe.

It is imported only when it is used (0.25 s), so everything here that touches it is done by `aside`.
"""

import functools
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar
from urllib.parse import urlsplit

import anyio
import anyio.from_thread
import anyio.lowlevel
import httpx2

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.net import is_loopback
from stockade.models.sources import MAX_LISTING_BYTES, NotReached
from stockade.models.tls import tls_context

SILENCE_S = 20.0
"""For the library's own requests: to connect, and between two pieces of an answer."""
ANSWER_S = 90.0
"""For one question to the hub with all its redirects."""

_PREPARING = threading.Lock()
_T = TypeVar("_T")


def endpoint() -> str:
    """Of the hub, or of the mirror that HF_ENDPOINT names."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def host() -> str:
    """The hub for people."""
    return urlsplit(endpoint()).hostname or endpoint()


def is_offline() -> bool:
    """True where the person has said that the hub is not to be asked."""
    said = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return said.lower() in {"1", "true", "yes", "on"}


@functools.cache
def _prepare() -> None:
    """Once per process. Left alone, the library fetches a list of coding agents and tells the hub which one runs us."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from huggingface_hub import constants, set_client_factory
        from huggingface_hub.utils.logging import set_verbosity
    constants.HF_HUB_DISABLE_TELEMETRY = True
    set_verbosity(logging.CRITICAL)
    set_client_factory(_client)


def _client() -> httpx2.Client:
    """With the certificates and proxies of our other requests, and answers that end."""
    return httpx2.Client(
        verify=tls_context(), follow_redirects=True, timeout=SILENCE_S, headers={"Accept-Encoding": "identity"},
        event_hooks={"response": [_bound]},
    )  # fmt: skip


def _bound(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise NotReached(f"{host()} answers compressed, which was not asked for")
    if isinstance(response.stream, httpx2.SyncByteStream):
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.SyncByteStream):
    """No more than MAX_LISTING_BYTES of an answer."""

    def __init__(self, stream: httpx2.SyncByteStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for block in self._stream:
            size += len(block)
            if size > MAX_LISTING_BYTES:
                raise NotReached(f"{host()} answers with more than {MAX_LISTING_BYTES} bytes")
            yield block

    def close(self) -> None:
        self._stream.close()


async def aside(work: Callable[[], _T]) -> _T:
    """What `work` returns, done in a thread that is left behind when this is cancelled, or after ANSWER_S.

    A thread of anyio's would be waited for when the process ends: a hub that is silent would hold Ctrl-C.
    """
    done, loop, outcome = anyio.Event(), anyio.lowlevel.current_token(), Future[_T]()

    def run() -> None:
        try:
            with _PREPARING:
                _prepare()
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001  raised again by result()
            outcome.set_exception(error)
        with suppress(anyio.RunFinishedError):
            anyio.from_thread.run_sync(done.set, token=loop)

    threading.Thread(target=run, name="stockade-hub", daemon=True).start()
    with anyio.move_on_after(ANSWER_S):
        await done.wait()
    if not outcome.done():
        raise NotReached(f"{host()} did not answer in {ANSWER_S:.0f} s")
    return outcome.result()


def token_to_send() -> str | None:
    """The person's, of HF_TOKEN or kept by `hf auth login`. Blocking: the library may renew it.

    None where it would go over plain HTTP. That it does not go to where the hub redirects is httpx2's doing.
    """
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import OIDCError

    is_safe = endpoint().startswith("https:") or is_loopback(endpoint())
    if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN or not is_safe:
        return None
    try:
        token = get_token()
    except (OIDCError, httpx2.HTTPError) as error:
        raise ModelUnavailable(f"the hub gives no token: {plain(str(error))}", "or unset HF_OIDC_RESOURCE") from None
    except (OSError, ValueError):
        return None  # a token that cannot be read is none: most files need no token
    if token and not (token.isascii() and token.isprintable()):
        raise UsageError("the token for the hub has characters that no token has", "mend HF_TOKEN")
    return token


def plain(text: str) -> str:
    """Words of others on one line."""
    return "".join(c if c.isprintable() else " " for c in text)[:200]
