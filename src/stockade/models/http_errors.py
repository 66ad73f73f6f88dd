"""The edge where HTTP's errors become ours."""

import json
import math
from collections.abc import Mapping
from typing import Any

import httpx2

from stockade.core.errors import ContextExceeded, ModelFailed, ModelOverloaded, ModelUnavailable

_TOO_LONG_CODES = {"exceed_context_size_error", "context_length_exceeded"}
_PASSING = {408, 409, 425, 429}


def from_status(status: int, headers: Mapping[str, str], body: bytes, server: str, model: str) -> ModelFailed:
    """The error for an answer that is not 200. `server` and `model` are for the message."""
    error = _error_of(body)
    said = _line(error.get("message")) or _line(body.decode(errors="replace"))
    if too_long := _too_long(error):
        return too_long
    if status in (401, 403):
        return ModelUnavailable(f"{server} refused the key ({status}): {said}", "set OPENAI_API_KEY to a valid key")
    if status == 404:
        return ModelUnavailable(f"{server} has no model '{model}' (404): {said}", "name one that the server lists")
    if status in _PASSING or status >= 500:
        word = "is busy" if status == 429 else "failed"
        return ModelOverloaded(f"{server} {word} ({status}): {said}", retry_after_s=_retry_after(headers))
    return ModelUnavailable(f"{server} refused the request ({status}): {said}")


def from_stream(error: object, server: str) -> ModelFailed:
    """The error for `{"error": ...}` amid a stream."""
    fields = error if isinstance(error, dict) else {"message": str(error)}
    return _too_long(fields) or ModelOverloaded(f"{server} broke off: {_line(fields.get('message')) or fields}")


def from_transport(error: Exception, server: str, answered_before: bool) -> ModelFailed:
    """The error for a connection that was not made or was lost. A server that answered before may be restarting."""
    cause = _line(str(error)) or type(error).__name__
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError) and not answered_before:
        return ModelUnavailable(f"no model server at {server}: {cause}", "start it, or choose another --model")
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
        return ModelUnavailable(f"not an address of a model server: {server}: {cause}")
    return ModelOverloaded(f"the connection to {server} was lost: {cause}")


def _error_of(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else {}
    return error if isinstance(error, dict) else {"message": error}


def _too_long(error: dict[str, Any]) -> ContextExceeded | None:
    if error.get("type") not in _TOO_LONG_CODES and error.get("code") not in _TOO_LONG_CODES:
        return None
    tokens, window = (value if isinstance(value, int) else None
                      for value in (error.get("n_prompt_tokens"), error.get("n_ctx")))  # fmt: skip
    return ContextExceeded(_line(error.get("message")) or "the request is larger than the window", tokens, window)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of Retry-After; the form with a date is left to our own back-off."""
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _line(text: object) -> str:
    """One printable line of bounded length: a server's words go to a terminal."""
    words = " ".join(text.split()) if isinstance(text, str) else ""
    return "".join(c for c in words if c.isprintable())[:300]
