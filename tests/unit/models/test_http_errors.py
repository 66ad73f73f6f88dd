"""What servers really say when something is wrong, as each spells it, and what it becomes here."""

import json

import pytest

from stockade.core.errors import ContextExceeded, ModelFailed, ModelOverloaded, ModelUnavailable
from stockade.models.http import from_status, from_stream, retry_after
from stockade.models.replies import OWN_THINKING, NoSuchModel, NotSupported, Refused


def error(status: int, body: object, headers: dict[str, str] | None = None) -> ModelFailed:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return from_status(status, headers or {}, raw, "box:1", "m", "set THE_KEY")


def openai(message: str, **fields: object) -> dict[str, object]:
    return {"error": {"message": message, **fields}}


TOO_LONG: dict[str, tuple[int, dict[str, object] | list[dict[str, object]], int | None, int | None]] = {
    "llama.cpp": (400, openai("request (9031 tokens) exceeds the available context size (4096 tokens), try increasing "
                              "it", type="exceed_context_size_error", n_prompt_tokens=9031, n_ctx=4096), 9031, 4096),
    "llama.cpp, text": (400, openai("request (9031 tokens) exceeds the available context size (4096 tokens), try "
                                    "increasing it"), 9031, 4096),
    "OpenAI": (400, openai("This model's maximum context length is 8192 tokens. However, your messages resulted in "
                           "10021 tokens. Please reduce the length of the messages.", code="context_length_exceeded",
                           type="invalid_request_error", param="messages"), 10021, 8192),
    "OpenAI, new": (400, openai("Your input exceeds the context window of this model. Please adjust your input and try "
                                "again.", code="context_length_exceeded"), None, None),
    "vLLM": (400, {"object": "error", "message": "This model's maximum context length is 2048 tokens. However, you "
                   "requested 2100 tokens (1600 in the messages, 500 in the completion).", "code": 400}, 2100, 2048),
    "vLLM, prompt": (400, openai("The decoder prompt (length 5000) is longer than the maximum model length of 4096. "
                                 "Make sure that `max_model_len` is no smaller."), 5000, 4096),
    "Anthropic": (400, {"type": "error", "error": {"type": "invalid_request_error", "message":
                        "prompt is too long: 208310 tokens > 200000 maximum"}}, 208310, 200000),
    "Anthropic, output": (400, {"type": "error", "error": {"type": "invalid_request_error", "message":
                          "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease"}},
                          190000, 200000),
    "Anthropic, bytes": (413, {"type": "error", "error": {"type": "request_too_large", "message":
                         "Request exceeds the maximum size"}}, None, None),
    "TGI": (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 "
                  "`inputs` tokens and 500 `max_new_tokens`", "error_type": "validation"}, None, 4096),
    "LM Studio": (400, {"error": "Trying to keep the first 9000 tokens when context the overflows. However, the number "
                        "of tokens to keep from the initial prompt is greater than the context length."}, None, None),
    "Google": (400, [openai("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                            code=400, status="INVALID_ARGUMENT")], 1200000, 1048576),
    "Azure": (400, openai("This model's maximum context length is 16385 tokens, however you requested 20000 tokens "
                          "(16000 in your prompt; 4000 for the completion).", code=None), 20000, 16385),
}  # fmt: skip


@pytest.mark.parametrize("server", list(TOO_LONG))
def test_too_long(server: str) -> None:
    status, body, tokens, window = TOO_LONG[server]
    found = error(status, body)
    assert isinstance(found, ContextExceeded), found
    assert (found.prompt_tokens, found.window) == (tokens, window)
    told = body[0] if isinstance(body, list) else body
    assert isinstance(from_stream(told.get("error", told), "box:1"), ContextExceeded)


def test_a_path_with_a_version_lacks_none() -> None:
    found = from_status(404, {}, b'{"detail": "Not Found"}', "box:1", "m", path="/v1/messages")
    assert "has no model 'm', or no model API at /v1/messages (404): " in str(found)


def test_numbers_that_no_window_has_are_none() -> None:
    found = error(400, openai("x", type="exceed_context_size_error", n_prompt_tokens=10**400, n_ctx=-1))
    assert isinstance(found, ContextExceeded)
    assert (found.prompt_tokens, found.window) == (None, None)


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (401, openai("Incorrect API key provided: sk-x"), ModelUnavailable, "refused the key (401): Incorrect API key"),
        (403, {"type": "error", "error": {"type": "permission_error", "message": "no"}}, ModelUnavailable, "THE_KEY"),
        (404, openai("The model `m` does not exist", code="model_not_found"), ModelUnavailable, "has no model 'm'"),
        (404, b'{"error":"model \\"m\\" not found, try pulling it first"}', ModelUnavailable, "try pulling it first"),
        (400, [openai("API key not valid. Please pass a valid API key.", code=400, status="INVALID_ARGUMENT")],
         ModelUnavailable, "refused the key (400): API key not valid. Please pass a valid API key. (set THE_KEY)"),
        (403, openai("Country, region, or territory not supported", code="unsupported_country_region_territory"),
         ModelUnavailable, "does not serve you (403)"),
        (403, openai("Project `p` does not have access to model `m`", code="model_not_found"), NoSuchModel,
         "has no model 'm' (403)"),
        (404, [openai("models/m is not found for API version v1main, or is not supported for generateContent. Call"
                      " ListModels to see the list of available models", code=404, status="NOT_FOUND")], NoSuchModel,
         "has no model 'm' (404): models/m is not found"),
        (400, openai("model 'm' not found", type="invalid_request_error"), NoSuchModel, "has no model 'm' (400)"),
        (401, {"error": "Unauthorized"}, ModelUnavailable, "refused the key (401): Unauthorized (set THE_KEY)"),
        (429, openai("Rate limit reached", code="rate_limit_exceeded"), ModelOverloaded, "is busy (429)"),
        (429, openai("You exceeded your current quota", code="insufficient_quota"), ModelUnavailable, "to be paid"),
        (400, {"type": "error", "error": {"message": "Your credit balance is too low"}}, ModelUnavailable,
         "to be paid"),
        (402, openai("Payment required"), ModelUnavailable, "to be paid"),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, ModelOverloaded,
         "is busy (529)"),
        (500, openai("boom"), ModelOverloaded, "failed (500): boom"),
        (503, openai("Loading model", type="unavailable_error"), ModelOverloaded, "failed (503)"),
        (502, b"<html><h1>Bad gateway</h1>", ModelOverloaded, "<h1>Bad gateway"),
        (408, b"", ModelOverloaded, "failed (408)"),
        (404, openai("File Not Found"), ModelUnavailable, "or the address lacks /v1 (404): File Not Found"),
        (404, b"404 page not found", ModelUnavailable, "has no model 'm', or the address lacks /v1 (404)"),
        (404, {"detail": "Not Found"}, ModelUnavailable, "add /v1 to the address"),
        (404, openai("The API deployment does not exist.", code="DeploymentNotFound"), ModelUnavailable,
         "has no model 'm' (404)"),
        (404, b"", ModelUnavailable, "has no model 'm', or"),
        (400, openai("Invalid schema for function 'shell'"), ModelUnavailable, "refused the request (400)"),
        (418, b"\xff\xfe\x00\x1b[2J", ModelUnavailable, "refused the request (418)"),
        (400, {"error": [1, 2]}, ModelUnavailable, "refused the request"),
        (400, {"error": {"message": {"a": 1}, "code": ["x"]}}, ModelUnavailable, "refused the request"),
        (500, b"[" * 100_000, ModelOverloaded, "failed (500)"),
    ],
)  # fmt: skip
def test_errors(status: int, body: object, kind: type[ModelFailed], said: str) -> None:
    found = error(status, body)
    assert isinstance(found, kind), found
    assert not isinstance(found, NotSupported)
    assert said in str(found)
    assert "\n" not in str(found)
    assert "\x1b" not in str(found)
    assert len(str(found)) < 500


@pytest.mark.parametrize(
    ("status", "body", "feature"),
    [
        (400, openai("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'"
                     " instead.", param="max_tokens", code="unsupported_parameter"), "max_tokens"),
        (400, openai("Unsupported value: 'temperature' does not support 0.4 with this model.", param="temperature",
                     code="unsupported_value"), "temperature"),
        (400, openai("Unsupported value: 'minimal' is not supported with this model.", param="reasoning.effort",
                     code="unsupported_value"), "reasoning"),
        (400, openai("Unrecognized request argument supplied: top_k"), "top_k"),
        (400, openai("`temperature` is deprecated for this model."), "temperature"),
        (422, {"detail": "x", "message": "seed: Extra inputs are not permitted"}, "seed"),
        (500, openai("System role not supported"), "system"),
        (400, openai("Failed to initialize samplers: failed to parse grammar"), "response_format"),
        (400, openai("JSON schema conversion failed:\nUnrecognized schema: {\"type\": \"odd\"}"), "response_format"),
        (400, openai("Invalid schema for response_format 'answer': In context=(), 'oneOf' is not permitted.",
                     param="response_format"), "response_format"),
        (400, {"object": "error", "message": "Failed to compile the json schema: unsupported feature"},
         "response_format"),
        (500, openai("failed to load the grammar"), "response_format"),
        (400, openai("Conversation roles must alternate user/assistant/user/assistant/..."), "system"),
    ],
)  # fmt: skip
def test_what_the_server_would_do_without(status: int, body: object, feature: str) -> None:
    found = error(status, body)
    assert isinstance(found, NotSupported), found
    assert found.feature == feature


def test_what_cannot_be_left_out_is_an_error() -> None:
    found = error(400, openai("Invalid value for 'messages': too odd", param="messages"))
    assert type(found) is Refused


@pytest.mark.parametrize(
    ("value", "seconds"), [
        ("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("nan", None), ("inf", None), ("Wed, 21 Oct", None), ("", None),
        ("Thu, 01 Jan 1970 00:10:00 GMT", 100.0), ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:10:00 +9999", None), ("Thu, 01 Jan 99999999 00:10:00 GMT", None),
    ],
)  # fmt: skip
def test_retry_after(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}, now=500.0) == seconds
    assert retry_after({"retry-after": value, "retry-after-ms": "1500"}, now=500.0) == 1.5
    assert retry_after({"retry-after": value, "retry-after-ms": "soon"}, now=500.0) == seconds


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "Function tools with reasoning_effort are not supported for gpt-6-sol in /v1/chat/completions. To use"
              " function tools, use /v1/responses or set reasoning_effort to 'none'."),
        (404, "This model is only supported in v1/responses and not in v1/chat/completions."),
    ],
)  # fmt: skip
def test_a_model_of_the_other_api_is_said_how_to_ask(status: int, said: str) -> None:
    body = json.dumps(openai(said)).encode()
    found = from_status(status, {}, body, "box", "m", path="/openai/deployments/m/chat/completions")
    assert (type(found), found.hint) == (Refused, "-o api=responses asks it there")
    assert said in found.message


def test_a_busy_server_says_when() -> None:
    for status in (429, 529, 503):
        found = error(status, openai("slow"), {"retry-after": "7"})
        assert isinstance(found, ModelOverloaded)
        assert found.retry_after_s == 7.0


QUOTA = "You exceeded your current quota, please check your plan and billing details. * Quota exceeded for metric: x"


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"message": QUOTA, "details": [
            {"@type": "type.googleapis.com/google.rpc.Help"},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "22s"},
        ]}, 22.0),
        ({"message": f"{QUOTA}, limit: 5\nPlease retry in 34.5s.", "details": "none"}, 34.5),
        ({"message": f"{QUOTA}\nPlease retry in 14h3m1s.", "details": [None, {"retryDelay": "soon"}]}, 50_581.0),
        ({"message": "Rate limit reached for gpt-x in organization o. Please try again in 20ms. Visit"}, 0.02),
        ({"message": "Rate limit reached. Please try again in 7m12s."}, 432.0),
        ({"message": "Please try again in 6m0s"}, 360.0),
        ({"message": "Please try again in a moment", "details": [{"retryDelay": "inf"}]}, None),
        ({"message": "You sent too many requests. Try again in some seconds"}, None),
    ],
)  # fmt: skip
def test_a_server_says_when_in_its_words(fields: dict[str, object], seconds: float | None) -> None:
    """What Google says of a quota a minute others say where the money is gone; but it says when to ask again."""
    found = error(429, [{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", **fields}}])
    assert isinstance(found, ModelOverloaded)
    assert found.retry_after_s == (None if seconds is None else pytest.approx(seconds))


def test_a_quota_that_does_not_come_again_is_not_waited_for() -> None:
    found = error(429, [{"error": {"code": 429, "message": QUOTA}}], {"retry-after": "7"})
    assert type(found) is ModelUnavailable


@pytest.mark.parametrize("body", [
    {"type": "error", "error": {"type": "invalid_request_error", "message": words}} for words in (
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.3.content.8: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be"
        " modified. These blocks must remain as they were in the original response.",
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking`"
        " is enabled, a final `assistant` message must start with a thinking block",
        "messages.1.content.0: When thinking is disabled, an `assistant` message in the final position cannot contain"
        " `thinking`.",
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'.",
        "The encrypted content for item rs_1 could not be verified. Reason: Encrypted content could not be decrypted.",
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
        "Thought signature is not valid",
        "Corrupted thought signature.",
    )
])  # fmt: skip
def test_thinking_that_is_not_taken_back(body: object) -> None:
    """As Anthropic (four), OpenAI (four) and Google (two) say it."""
    found = error(400, body)
    assert isinstance(found, NotSupported), found
    assert found.feature == OWN_THINKING


@pytest.mark.parametrize(("said", "feature"), [
    ("`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.", "temperature"),
    ("adaptive thinking is not supported on this model", "thinking"),
    ("This model does not support the effort parameter.", "effort"),
    ("output_config: Extra inputs are not permitted", "output_config"),
])  # fmt: skip
def test_what_claude_would_do_without(said: str, feature: str) -> None:
    found = error(400, {"type": "error", "error": {"type": "invalid_request_error", "message": said}})
    assert isinstance(found, NotSupported), found
    assert found.feature == feature


@pytest.mark.parametrize("fault", ["text", None, 3, [1], {"message": None}, {"message": "x" * 10_000}])
def test_odd_errors_amid_a_stream(fault: object) -> None:
    assert isinstance(from_stream(fault, "box:1"), ModelOverloaded)


def test_what_a_stream_says_of_money_and_of_waiting() -> None:
    """As OpenAI's Responses and OpenRouter do, amid an answer."""
    for fault in ({"code": "insufficient_quota", "message": "You exceeded your current quota"}, {"code": 402}):
        found = from_stream(fault, "box:1")
        assert isinstance(found, ModelUnavailable)
        assert found.message.startswith("box:1 wants to be paid: ")
    busy = from_stream({"code": "rate_limit_exceeded", "message": "Please try again in 11.5s. Visit us"}, "box:1")
    assert isinstance(busy, ModelOverloaded)
    assert busy.retry_after_s == 11.5
