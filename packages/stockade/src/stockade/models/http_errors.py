"""The edge where HTTP's errors become ours. What servers say is data from outside: one printable line of it is kept."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from stockade.core.errors import ContextExceeded, ModelFailed, ModelOverloaded, ModelUnavailable
from stockade.core.text import one_line
from stockade.models.replies import NotSupported, Refused, as_count

_TOO_LONG_CODES = {"exceed_context_size_error", "context_length_exceeded", "request_too_large"}
# llama.cpp, vLLM, OpenAI, Anthropic (two), TGI, LM Studio, Ollama. Numbers: what was asked for, what there is.
_TOO_LONG = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"request \((?P<tokens>\d+) tokens\) exceeds the available context size \((?P<window>\d+) tokens\)",
        r"maximum context length (?:is|of) (?P<window>\d+) tokens.{0,80}?(?:resulted in|requested|has|contains?)"
        r"[^\d]{0,40}(?P<tokens>\d+)",
        r"maximum context length (?:is|of) (?P<window>\d+)",
        r"prompt is too long: (?P<tokens>\d+) tokens > (?P<window>\d+)",
        r"exceed context limit: (?P<tokens>\d+) \+ \d+ > (?P<window>\d+)",
        r"prompt \(length (?P<tokens>\d+)\) is longer than the maximum model length of (?P<window>\d+)",
        r"`?inputs`? tokens \+ `?max_new_tokens`? must be <= (?P<window>\d+)",
        r"tokens to keep from the initial prompt is greater than the context length",
        r"context (?:size|length|window)[^.]{0,40} (?:exceeded|overflow)|exceeds? the (?:available )?context",
        r"input (?:tokens exceed|length exceeds|is longer than)[^.]{0,60}(?:limit|context|maximum)",
    )
)
_NO_MONEY = re.compile(r"insufficient_quota|exceeded your current quota|credit balance is too low", re.IGNORECASE)
_NO_SYSTEM = re.compile(r"system role (?:is )?not supported|no system role|'?system'? role is not allowed|"
                        r"conversation roles must alternate|only user(?:,| and) assistant", re.IGNORECASE)  # fmt: skip
# llama.cpp (two), vLLM's xgrammar and outlines, OpenAI and Ollama.
_NO_SCHEMA = re.compile(r"failed to (?:parse|compile|load|build) (?:the )?(?:json )?(?:grammar|schema)|"
                        r"json schema conversion failed|grammar (?:error|is not|is too)|"
                        r"(?:invalid|unsupported|unrecogni[sz]ed) (?:json )?schema(?! for function)",
                        re.IGNORECASE)  # fmt: skip
_REFUSED = re.compile(r"unsupported|not supported|unknown|unrecogni[sz]ed|unexpected|deprecated|not permitted|"
                      r"not allowed|not support\b", re.IGNORECASE)  # fmt: skip
_OPTIONAL = {"temperature", "top_p", "top_k", "min_p", "repeat_penalty", "seed", "presence_penalty", "typical_p",
             "frequency_penalty", "stop", "stream_options", "max_tokens", "max_completion_tokens", "cache_prompt",
             "id_slot", "response_format", "mirostat", "mirostat_tau", "mirostat_eta", "dry_multiplier",
             "dry_allowed_length"}  # fmt: skip
_PASSING = {408, 409, 425, 429}


def from_status(
    status: int, headers: Mapping[str, str], body: bytes, server: str, model: str,
    key_hint: str = "set OPENAI_API_KEY to a valid key", path: str = "",
) -> ModelFailed:  # fmt: skip
    """The error for an answer that is not 200. `server`, `model` and `path`, which was asked, are for the message."""
    error = _error_of(body)
    reply = _line(error.get("message")) or _line(body.decode(errors="replace"))
    if too_long := _too_long(error, reply):
        return too_long
    if status in (401, 403):
        return ModelUnavailable(f"{server} refused the key ({status}): {reply}", key_hint)
    if status == 402 or _NO_MONEY.search(f"{error.get('code')} {error.get('type')} {reply}"):
        return ModelUnavailable(f"{server} wants to be paid ({status}): {reply}", "look at the account's balance")
    if status == 404:
        return _not_found(server, model, reply, path)
    if status >= 400 and _NO_SYSTEM.search(reply):
        return NotSupported(f"{server}: {reply}", "system")
    if (status in (400, 422) or status >= 500) and _NO_SCHEMA.search(reply):
        return NotSupported(f"{server} refused the request ({status}): {reply}", "response_format")
    if status in (400, 422) and (refused := _refused(error, reply)):
        return NotSupported(f"{server} does not take {refused} ({status}): {reply}", refused)
    if status in _PASSING or status >= 500:
        word = "is busy" if status in (429, 529) else "failed"
        return ModelOverloaded(f"{server} {word} ({status}): {reply}", retry_after_s=_retry_after(headers))
    return Refused(f"{server} refused the request ({status}): {reply}")


def _not_found(server: str, model: str, said: str, path: str) -> ModelUnavailable:
    """A server that says nothing of a model may have none of this API at this address."""
    if re.search("model|deployment", said, re.IGNORECASE) or model in said:
        return ModelUnavailable(f"{server} has no model '{model}' (404): {said}", "name one that the server lists")
    versioned = re.search(r"/v\d", path)
    other = f"no model API at {path}" if versioned else "the address lacks /v1"
    return ModelUnavailable(
        f"{server} has no model '{model}', or {other} (404): {said}",
        f"name one that the server lists, or {'look at' if versioned else 'add /v1 to'} the address",
    )


def from_stream(error: object, server: str) -> ModelFailed:
    """The error for `{"error": ...}` amid a stream."""
    fields = error if isinstance(error, dict) else {"message": str(error)}
    reply = _line(fields.get("message")) or _line(str(fields))
    return _too_long(fields, reply) or ModelOverloaded(f"{server} broke off: {reply}")


def _error_of(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else {}
    return error if isinstance(error, dict) else {"message": error}


def _too_long(error: dict[str, Any], said: str) -> ContextExceeded | None:
    result = next((match for pattern in _TOO_LONG if (match := pattern.search(said))), None)
    coded = any(isinstance(code := error.get(key), str) and code in _TOO_LONG_CODES for key in ("type", "code"))
    if not coded and result is None:
        return None
    numbers = {name: as_count(int(value)) for name, value in (result.groupdict() if result else {}).items() if value}
    tokens, window = as_count(error.get("n_prompt_tokens")), as_count(error.get("n_ctx"))
    return ContextExceeded(
        said or "the request is larger than the window",
        tokens or numbers.get("tokens") or None,
        window or numbers.get("window") or None,
    )


def _refused(error: dict[str, Any], said: str) -> str | None:
    """The parameter that the server does not take, when it can be left out."""
    named = error.get("param")
    names = [named] if isinstance(named, str) else []
    if _REFUSED.search(said):
        names += re.findall("[a-z_]+", said.lower())
    return next((word for word in names if word in _OPTIONAL), None)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of Retry-After; the form with a date is left to our own back-off."""
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _line(text: object) -> str:
    """A server's words go to a terminal."""
    return one_line(text[:2000], 300) if isinstance(text, str) else ""
