"""What servers tell of their models: windows that would be cut in silence, templates, exact counts of tokens."""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from stockade.core.messages import Image, Message, ModelInfo, ModelRequest
from stockade.loop.window import CountsTokens
from stockade.models.openai import OLLAMA_DEFAULT_WINDOW, OpenAIModel
from stockade.models.openai_request import Dialect
from stockade.testing.conformance.model import question
from tests.support.fake_openai import FakeOpenAI, fails

pytestmark = pytest.mark.anyio
SHOWN = {"model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40960}, "parameters": "stop x"}


async def window_of(dialect: Dialect, routes: Mapping[str, object]) -> tuple[int | None, str]:
    """The window that is learned, and what the person is told."""
    heard: list[str] = []
    async with FakeOpenAI(models=[{"id": "m"}, {"id": "other"}], routes=routes) as server:
        on_progress = lambda text, *_: heard.append(text)  # noqa: E731
        async with OpenAIModel(server.base_url, "m", dialect=dialect, on_progress=on_progress) as model:
            return model.info.context_window, " ".join(heard)


@pytest.mark.parametrize(
    ("routes", "window", "said"),
    [
        ({"/api/show": SHOWN}, OLLAMA_DEFAULT_WINDOW, "of the 40960 that it was made for"),
        ({"/api/show": {**SHOWN, "parameters": 'stop "x"\nnum_ctx                        16384\n'}}, 16384, ""),
        ({"/api/show": SHOWN, "/api/ps": {"models": [{"name": "m:latest", "context_length": 8192}]}}, 8192,
         "OLLAMA_CONTEXT_LENGTH"),
        ({"/api/show": SHOWN, "/api/ps": {"models": [{"name": "other", "context_length": 1}]},
          "/api/generate": {}}, 4096, "4096"),
        ({"/api/show": {"model_info": {"bert.context_length": 512}}}, 512, ""),
        ({"/api/show": {"model_info": None, "parameters": 7}, "/api/ps": {"models": {}}}, 4096, ""),
        ({"/api/show": {"model_info": {"x.context_length": "40960"}}, "/api/ps": {"models": [None, 3]},
          "/api/generate": {}}, 4096, "ollama loads m"),
        ({}, None, ""),
    ],
)  # fmt: skip
async def test_ollama(routes: dict[str, object], window: int | None, said: str) -> None:
    found, heard = await window_of(Dialect(server="ollama"), routes)
    assert found == window
    assert said in heard
    assert bool(heard) is bool(said)


async def test_ollama_is_asked_to_load_the_model_before_it_is_asked_for_its_window() -> None:
    """Its default depends on the memory of the graphics card: nobody but itself knows it."""
    loaded: list[object] = []

    def load() -> object:
        loaded.append({"name": "m", "context_length": 32768})
        return {"model": "m", "response": "", "done": True, "done_reason": "load"}

    routes: dict[str, object] = {"/api/show": SHOWN, "/api/ps": lambda: {"models": loaded}, "/api/generate": load}
    assert await window_of(Dialect(server="ollama"), routes) == (32768, "ollama loads m")
    assert await window_of(Dialect(server="ollama"), routes) == (32768, "")
    assert len(loaded) == 1


@pytest.mark.parametrize(
    "about", [{**SHOWN, "parameters": "num_ctx 16384"}, {**SHOWN, "remote_host": "https://ollama.com:443"}]
)
async def test_ollama_is_not_asked_to_load_what_has_a_window_already(about: dict[str, object]) -> None:
    def load() -> object:
        raise AssertionError("it was loaded")

    routes: dict[str, object] = {"/api/show": about, "/api/ps": {"models": []}, "/api/generate": load}
    window = 40960 if "remote_host" in about else 16384
    assert await window_of(Dialect(server="ollama"), routes) == (window, "")


async def test_a_model_that_ollama_cannot_load_has_the_least_window() -> None:
    """Why it cannot, its first question says."""
    routes: dict[str, object] = {"/api/show": SHOWN, "/api/ps": {"models": []}, "/api/generate": None}
    found, heard = await window_of(Dialect(server="ollama"), routes)
    assert found == OLLAMA_DEFAULT_WINDOW
    assert heard.startswith("ollama loads m ollama gives m a window of 4096")


@pytest.mark.parametrize(
    ("about", "window", "said"),
    [
        ({"loaded_context_length": 4096, "max_context_length": 32768}, 4096, "LM Studio gives m a window of 4096"),
        ({"loaded_context_length": 32768, "max_context_length": 32768}, 32768, ""),
        ({"max_context_length": 32768}, None, ""),
        ({}, None, ""),
    ],
)
async def test_lm_studio(about: dict[str, object], window: int | None, said: str) -> None:
    found, heard = await window_of(Dialect(server="lm-studio"), {"/api/v0/models/m": about} if about else {})
    assert found == window
    assert said in heard


async def test_lm_studio_loads_the_model_before_it_is_asked_for_its_window() -> None:
    loaded: list[bool] = []

    def about() -> object:
        window = {"state": "loaded", "loaded_context_length": 4096} if loaded else {"state": "not-loaded"}
        return {"max_context_length": 32768, **window}

    def hello() -> object:
        loaded.append(True)
        return {"choices": []}

    routes: dict[str, object] = {"/api/v0/models/m": about, "/v1/chat/completions": hello}
    found, heard = await window_of(Dialect(server="lm-studio"), routes)
    assert found == 4096
    assert heard.startswith("LM Studio loads m LM Studio gives m a window of 4096")
    assert (await window_of(Dialect(server="lm-studio"), routes))[0] == 4096
    assert len(loaded) == 1


async def test_a_llama_server_with_several_models_is_asked_for_the_one() -> None:
    """It loads a model when it is asked for that one's /props, and lists its size from then on."""
    listed: list[dict[str, Any]] = [{"id": "other"}, {"id": "a/m:q4", "status": {"value": "unloaded"}}]
    heard: list[str] = []

    def load() -> object:
        listed[1] |= {"status": {"value": "loaded"}, "meta": {"n_params": 1_500_000_000}}
        return {"default_generation_settings": {"n_ctx": 2048}, "chat_template_caps": {"supports_tool_calls": False}}

    routes: dict[str, object] = {
        "/props": {"role": "router", "default_generation_settings": {"n_ctx": 0}}, "/props?model=a%2Fm%3Aq4": load,
        "/v1/models": lambda: {"data": listed},
    }  # fmt: skip
    async with FakeOpenAI(routes=routes) as server:
        for _ in range(2):
            on_progress = lambda text, *_: heard.append(text)  # noqa: E731
            dialect = Dialect(llama_cpp=True)
            async with OpenAIModel(server.base_url, "a/m:q4", dialect=dialect, on_progress=on_progress) as model:
                assert (model.info.context_window, model.info.small) == (2048, True)
    assert heard == ["llama-server loads a/m:q4"]


@pytest.mark.parametrize(
    ("dialect", "routes", "listed", "sees"),
    [
        (Dialect(), {}, {"architecture": {"input_modalities": ["text", "image"]}}, True),
        (Dialect(), {}, {"architecture": {"input_modalities": ["text"]}}, False),
        (Dialect(), {}, {"capabilities": {"vision": True}}, True),
        (Dialect(), {}, {"capabilities": ["vision"], "architecture": 7}, None),
        (Dialect(llama_cpp=True), {"/props": {"modalities": {"vision": False}}}, {}, False),
        (Dialect(server="ollama"), {"/api/show": {"capabilities": ["vision"]}}, {}, True),
        (Dialect(server="ollama"), {"/api/show": {"capabilities": ["tools"]}}, {}, False),
        (Dialect(server="ollama"), {"/api/show": SHOWN}, {}, None),
        (Dialect(server="lm-studio"), {"/api/v0/models/m": {"type": "vlm"}}, {}, True),
        (Dialect(server="lm-studio"), {"/api/v0/models/m": {"type": "llm"}}, {}, False),
    ],
)
async def test_whether_it_sees(
    dialect: Dialect, routes: dict[str, object], listed: dict[str, object], sees: bool | None
) -> None:
    async with FakeOpenAI(models=[{"id": "m", **listed}], routes=routes) as server:
        async with OpenAIModel(server.base_url, "m", dialect=dialect) as model:
            assert model.info.sees is sees


async def sent_to(caps: dict[str, object], request: ModelRequest) -> dict[str, Any]:
    """The body that a llama.cpp server with these template caps gets."""
    async with FakeOpenAI(props={"chat_template_caps": caps}) as server:
        async with OpenAIModel(server.base_url, "fake", dialect=Dialect(llama_cpp=True)) as model:
            await model.ask(request)
        body: dict[str, Any] = server.questions[0].body
        return body


TOOL = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}


async def test_templates_without_system_role_or_tools() -> None:
    request = question().model_copy(update={"tools": (TOOL,)})
    whole = await sent_to({"supports_system_role": True, "supports_tools": True}, request)
    assert [message["role"] for message in whole["messages"]] == ["system", "user"]
    assert whole["tools"] == [TOOL]
    bare = await sent_to({"supports_system_role": False, "supports_tool_calls": False}, request)
    (message,) = bare["messages"]
    assert message["role"] == "user"
    assert message["content"].startswith("You are brief.")
    assert '"name": "shell"' in message["content"]
    assert message["content"].endswith("\n\nSay hello.")
    assert "tools" not in bare


async def test_an_image_stays_where_the_template_has_no_system_role() -> None:
    image = Image(name="x", media_type="image/gif", base64="aGk=")
    system, user = question().messages
    request = question().model_copy(update={"messages": (system, user.model_copy(update={"images": (image,)}))})
    (message,) = (await sent_to({"supports_system_role": False}, request))["messages"]
    assert message["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/gif;base64,aGk="}}


async def test_a_server_that_refuses_the_system_role_gets_none_from_then_on() -> None:
    async with FakeOpenAI([fails(500, "System role not supported")]) as server:
        async with OpenAIModel(server.base_url, "fake") as model:
            assert (await model.ask(question())).content == "ok"
            await model.ask(question())
        roles = [[message["role"] for message in asked.body["messages"]] for asked in server.questions]
    assert roles == [["system", "user"], ["user"], ["user"]]


async def test_parameters_that_are_refused_are_left_out_from_then_on() -> None:
    replies = [
        fails(400, "Unsupported parameter: 'max_tokens'", param="max_tokens"),
        fails(400, "Unsupported value: 'temperature' does not support 0", param="temperature"),
        fails(400, "Unrecognized request argument supplied: top_k"),
    ]
    request = question()
    sampling = request.sampling.model_copy(update={"top_k": 4, "typical_p": 0.5})
    async with FakeOpenAI(replies) as server, OpenAIModel(server.base_url, "fake") as model:
        await model.ask(request.model_copy(update={"sampling": sampling}))
        last = server.questions[-1].body
    assert last["max_completion_tokens"] == 48
    assert not last.keys() & {"max_tokens", "temperature", "top_k", "typical_p"}


async def test_a_server_that_refuses_the_same_for_ever_is_given_up() -> None:
    async with FakeOpenAI([fails(400, "Unsupported parameter: 'seed'", param="seed")] * 3) as server:
        async with OpenAIModel(server.base_url, "fake") as model:
            with pytest.raises(Exception, match="does not take seed"):
                await model.ask(question())
        assert len(server.questions) == 2


@pytest.mark.parametrize(
    ("dialect", "routes", "tokens", "asked"),
    [
        (Dialect(llama_cpp=True), {"/v1/chat/completions/input_tokens": {"input_tokens": 42}}, 42, 1),
        (Dialect(llama_cpp=True), {}, None, 1),
        (Dialect(server="vllm"), {"/tokenize": {"count": 7, "max_model_len": 9}}, 7, 1),
        (Dialect(server="vllm"), {"/tokenize": {"count": "7"}}, None, 1),
        (Dialect(), {"/tokenize": {"count": 7}}, None, 0),
    ],
)
async def test_tokens_are_counted_by_the_server(
    dialect: Dialect, routes: dict[str, object], tokens: int | None, asked: int
) -> None:
    async with FakeOpenAI([fails(404)] * 9, routes=routes) as server:
        async with OpenAIModel(server.base_url, "fake", dialect=dialect) as model:
            assert isinstance(model, CountsTokens)
            before = len(server.asked)
            assert await model.count(question()) == tokens
            assert len(server.asked) - before == asked
            before = len(server.asked)
            assert await model.count(question()) == tokens
            assert len(server.asked) - before == (0 if tokens is None else max(1, asked - 1))
            if dialect.llama_cpp and tokens:
                assert json.loads(server.asked[-1].raw)


async def test_what_was_sent_begins_what_is_sent_next_though_roles_were_joined() -> None:
    messages = [Message(role="system", content="s"), Message(role="user", content="u")]
    async with FakeOpenAI(props={"chat_template_caps": {"supports_system_role": False}}) as server:
        async with OpenAIModel(server.base_url, "fake", dialect=Dialect(llama_cpp=True)) as model:
            for number in range(3):
                await model.ask(ModelRequest(messages=tuple(messages)))
                messages += [Message(role="assistant", content=f"a{number}"), Message(role="user", content="more")]
        bodies = [asked.body["messages"] for asked in server.questions]
    assert [len(body) for body in bodies] == [1, 3, 5]
    assert all(new[: len(old)] == old for old, new in pairwise(bodies))


async def learned(dialect: Dialect, models: list[dict[str, Any]], routes: Mapping[str, object]) -> ModelInfo:
    async with FakeOpenAI(models=models, routes=routes) as server:
        async with OpenAIModel(server.base_url, "m", dialect=dialect) as model:
            return model.info


@pytest.mark.parametrize(
    ("server", "listed", "routes", "parameters", "source"),
    [
        ("llama.cpp", {"id": "/models/x.gguf", "meta": {"n_params": 1777088000}}, {}, 1777088000, "/v1/models"),
        ("llama.cpp", {"id": "m", "meta": {"n_params": "many"}}, {}, None, ""),
        ("llama.cpp", {"id": "qwen-1.5b"}, {}, None, ""),  # a name says nothing
        ("ollama", {"id": "m"}, {"/api/show": {"details": {"parameter_size": "3.2B"}}}, 3_200_000_000, "/api/show"),
        ("ollama", {"id": "m"},
         {"/api/show": {"model_info": {"general.parameter_count": 30532122624}, "details": {"parameter_size": "3B"}}},
         30532122624, "/api/show"),
        ("ollama", {"id": "m"}, {"/api/show": {"details": {"parameter_size": 3}}}, None, ""),
        ("lm-studio", {"id": "m"}, {"/api/v1/models": {"models": [None, {"key": "m", "params_string": "270M"}]}},
         270_000_000, "/api/v1/models"),
        ("lm-studio", {"id": "m"}, {"/api/v1/models": {"models": [{"key": "n", "params_string": "270M"}]}}, None, ""),
        ("vllm", {"id": "m"}, {}, None, ""),
    ],
)  # fmt: skip
async def test_parameters_are_told_by_the_server_or_unknown(
    server: str, listed: dict[str, Any], routes: dict[str, object], parameters: int | None, source: str
) -> None:
    dialect = Dialect(llama_cpp=True) if server == "llama.cpp" else Dialect(server=server)
    info = await learned(dialect, [listed], routes)
    assert info.parameters == parameters
    assert source in info.sources.get("parameters", "")
    assert bool(source) is ("parameters" in info.sources)
    assert info.small is (None if parameters is None else parameters <= 4_050_000_000)


async def test_a_model_of_ollamas_cloud_is_not_on_this_machine() -> None:
    routes = {"/api/show": {"remote_host": "https://ollama.com:443"}}
    found = await learned(Dialect(server="ollama"), [{"id": "m"}], routes)
    assert (found.local, found.priced) == (False, False)
    assert (await learned(Dialect(server="ollama"), [{"id": "m"}], {"/api/show": {}})).local


@pytest.mark.parametrize(
    ("parameters", "small"),
    [(None, None), (1, True), (4_000_000_000, True), (4_022_468_096, True), (4_100_000_000, False), (10**12, False)],
)
def test_small_is_four_billion_or_fewer(parameters: int | None, small: bool | None) -> None:
    assert ModelInfo(name="m", provider="p", parameters=parameters).small is small
