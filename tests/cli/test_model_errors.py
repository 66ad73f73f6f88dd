"""A wrong key, a model that is not there, a window too small and a server that is down: one line with the cause and the
way out, for what OpenAI, Anthropic, Google, Ollama, llama.cpp and vLLM really send.
"""

import json
import sys
from typing import Any

import anyio
import pytest

from stockade.models.providers import PROVIDERS
from tests.cli.conftest import Stage
from tests.support.fake_openai import FakeOpenAI, Reply

pytestmark = pytest.mark.anyio


def error(message: str, **fields: object) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


def google(code: int, message: str, status: str) -> list[dict[str, Any]]:
    return [error(message, code=code, status=status)]


def anthropic(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


OPENAI = {"OPENAI_API_KEY": "sk-wrong"}
CLAUDE = {"ANTHROPIC_API_KEY": "sk-ant-wrong"}
URL = "https://platform.openai.com/account/api-keys"
REAL: dict[str, tuple[str, str, dict[str, str], int, object, tuple[str, str]]] = {
    "OpenAI, key": ("openai/gpt-5-mini", "OPENAI_BASE_URL", OPENAI, 401,
                    error(f"Incorrect API key provided: sk-wrong. You can find your API key at {URL}.",
                          type="invalid_request_error", param=None, code="invalid_api_key"),
                    ("refused the key (401): Incorrect API key provided", "(set OPENAI_API_KEY to a valid key)")),
    "OpenAI, model": ("openai/gpt-5-mni", "OPENAI_BASE_URL", OPENAI, 404,
                      error("The model `gpt-5-mni` does not exist or you do not have access to it.",
                            type="invalid_request_error", param=None, code="model_not_found"),
                      ("has no model 'gpt-5-mni' (404)", "(did you mean openai/gpt-5-mini?)")),
    "OpenAI, window": ("openai/gpt-5-mini", "OPENAI_BASE_URL", OPENAI, 400,
                       error("This model's maximum context length is 128 tokens. However, your messages resulted in"
                             " 900 tokens.", type="invalid_request_error", code="context_length_exceeded"),
                       ("maximum context length is 128 tokens", "(give it less at once, or take a model")),
    "Anthropic, key": ("anthropic/claude-x", "ANTHROPIC_BASE_URL", CLAUDE, 401,
                       anthropic("authentication_error", "invalid x-api-key"),
                       ("refused the key (401): invalid x-api-key", "(set ANTHROPIC_API_KEY to a valid key)")),
    "Anthropic, model": ("anthropic/claude-sonet-4", "ANTHROPIC_BASE_URL", CLAUDE, 404,
                         anthropic("not_found_error", "model: claude-sonet-4"),
                         ("has no model 'claude-sonet-4' (404)", "(did you mean anthropic/claude-sonnet-4?)")),
    "Anthropic, window": ("anthropic/claude-x", "ANTHROPIC_BASE_URL", CLAUDE, 400,
                          anthropic("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"),
                          ("prompt is too long: 208310 tokens > 200000", "(give it less at once")),
    "Google, key": ("openai/gemini-2.5-pro", "OPENAI_BASE_URL", OPENAI, 400,
                    google(400, "API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT"),
                    ("refused the key (400): API key not valid.", "(set OPENAI_API_KEY to a valid key)")),
    "Google, model": ("openai/gemini-2.5-prro", "OPENAI_BASE_URL", OPENAI, 404,
                      google(404, "models/gemini-2.5-prro is not found for API version v1main, or is not supported for"
                             " generateContent. Call ListModels to see the list of available models.", "NOT_FOUND"),
                      ("has no model 'gemini-2.5-prro' (404)", "(did you mean openai/gemini-2.5-pro?)")),
    "Ollama, model": ("ollama/qwen3:8", "OLLAMA_HOST", {}, 404,
                      error("model 'qwen3:8' not found", type="not_found_error", param=None, code=None),
                      ("has no model 'qwen3:8' (404)", "(did you mean ollama/qwen3:8b?)")),
    "llama.cpp, key": ("llama-server/m", "LLAMA_SERVER_URL", {}, 401,
                       error("Invalid API Key", code=401, type="authentication_error"),
                       ("refused the key (401): Invalid API Key", "(set LLAMA_API_KEY to a valid key)")),
    "llama.cpp, window": ("llama-server/m", "LLAMA_SERVER_URL", {}, 400,
                          error("request (9031 tokens) exceeds the available context size (512 tokens), try increasing"
                                " it", code=400, type="exceed_context_size_error", n_prompt_tokens=9031, n_ctx=512),
                          ("exceeds the available context size (512 tokens)", "(give it less at once")),
    "vLLM, key": ("vllm/m", "VLLM_BASE_URL", {}, 401, {"error": "Unauthorized"},
                  ("refused the key (401): Unauthorized", "(set VLLM_API_KEY to a valid key)")),
    "vLLM, model": ("vllm/Qwen3-8B", "VLLM_BASE_URL", {}, 404,
                    error("The model `Qwen3-8B` does not exist.", type="NotFoundError", param="model", code=404),
                    ("has no model 'Qwen3-8B' (404)", "(did you mean vllm/Qwen/Qwen3-8B?)")),
}  # fmt: skip
LISTED = [
    {"id": id_} for id_ in ("gpt-5-mini", "models/gemini-2.5-pro", "qwen3:8b", "Qwen/Qwen3-8B", "claude-sonnet-4")
]


async def ended(stage: Stage, model: str, **where: str) -> tuple[int, list[str]]:
    flags = ("run", "count", "--folder", str(stage.demo), "--no-input", "-o", "answers=json", "--model", model)
    command = [sys.executable, "-m", "stockade.cli", *flags]
    process = await anyio.run_process(command, check=False, env={**stage.environment(), **where})
    assert process.stdout == b""
    return process.returncode, process.stderr.decode().splitlines()


@pytest.mark.parametrize("what", list(REAL))
async def test_one_line_with_cause_and_way_out(stage: Stage, what: str) -> None:
    model, variable, keys, status, body, (cause, way_out) = REAL[what]
    listing = {"/v1/models?limit=1000": {"data": LISTED}}
    server = FakeOpenAI(
        models=LISTED, routes=listing, otherwise=lambda: Reply(status=status, body=json.dumps(body).encode())
    )
    async with server:
        url = server.base_url if variable == "OPENAI_BASE_URL" else server.url
        code, lines = await ended(stage, model, **{variable: url}, **keys)
    assert code == 5, lines
    (line,) = [line for line in lines if line.startswith("failed (model: ")]
    assert cause in line
    assert way_out in line
    assert not any("Traceback" in line for line in lines)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama", "llama-server", "vllm", "lm-studio"])
async def test_a_server_that_is_down(stage: Stage, provider: str) -> None:
    code, lines = await ended(stage, f"{provider}/m", **{PROVIDERS[provider].url_variables[0]: "http://127.0.0.1:1"})
    assert code == 5, lines
    (line,) = [line for line in lines if line.startswith("failed (model: ")]
    assert "no model server at 127.0.0.1:1: Connection refused (start it, or choose another --model)" in line
