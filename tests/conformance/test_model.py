"""The Model port: on a fake server, on a script, and on the real embedded SmolLM2, fetched by our own code."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import pytest

from stockade.core.errors import ModelUnavailable
from stockade.core.ports import Model
from stockade.models.http import Client
from stockade.models.local.catalogue import CATALOGUE
from stockade.models.local.embedded import EmbeddedModel
from stockade.models.local.fetch import fetch
from stockade.models.openai import OpenAIModel
from stockade.models.providers import bearer
from stockade.models.scripted import ScriptedModel
from stockade.models.settings import ModelSettings
from stockade.testing.conformance.model import TIMEOUT_S, ModelConformance, WindowConformance, given, question
from tests.support.fake_openai import FakeOpenAI, Reply, piece, says

ANSWER = json.dumps({"word": "hello", "yes": True})
# Read before the fixture that hides the person's folders: 98 MB are fetched once per machine, not once per run.
MODELS = Path(os.environ.get("STOCKADE_TEST_MODELS") or Path.home() / ".cache/stockade-dev/models")
SMALL = ModelSettings(ctx_size=1024)
Broken = Callable[[Callable[[bytes], bytes]], Path]
on_anyio = pytest.mark.anyio


class TestOpenAI(ModelConformance):
    enforces_schema = True

    def open_model(self) -> AbstractAsyncContextManager[Model]:
        return self._open([says(ANSWER)] * 8)

    def open_slow(self) -> AbstractAsyncContextManager[Model]:
        return self._open([Reply([piece("one")], end="stall"), says(ANSWER)])

    @asynccontextmanager
    async def _open(self, replies: list[Reply]) -> AsyncIterator[Model]:
        async with FakeOpenAI(replies) as server, OpenAIModel(server.base_url, "fake") as model:
            yield model


class TestScripted(ModelConformance):
    enforces_schema = True

    @pytest.fixture(autouse=True)
    def _script(self, tmp_path: Path) -> None:
        line = {"content": ANSWER}
        (tmp_path / "quick").write_text("\n".join([json.dumps(line)] * 8))
        slow = {"content": "one two three", "delay_s": 3}
        (tmp_path / "slow").write_text("\n".join([json.dumps(slow), json.dumps(line)]))
        self._folder = tmp_path

    def open_model(self) -> AbstractAsyncContextManager[Model]:
        return given(ScriptedModel(self._folder / "quick"))

    def open_slow(self) -> AbstractAsyncContextManager[Model]:
        return given(ScriptedModel(self._folder / "slow"))


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return anyio.run(partial(fetch, CATALOGUE["smollm2"], folder=MODELS))


class TestEmbedded(WindowConformance):
    enforces_schema = True

    @pytest.fixture(autouse=True)
    def _file(self, smollm2: Path) -> None:
        self._path = smollm2

    def test_what_repeats_itself_is_ended_and_counted(self) -> None:
        """Made to by a grammar: what this model says by itself is not the same on each machine."""
        again = {"type": "array", "items": {"const": "again and again"}, "minItems": 150}

        async def check(model: Model) -> None:
            answer = await model.ask(question("Say it.", max_tokens=1500, schema=again))
            assert answer.finish_reason == "repeats"
            assert 1200 <= len(answer.content) <= 1500
            assert answer.usage.prompt_tokens > 10
            assert 100 < answer.usage.completion_tokens < 1400
            assert (await model.ask(question(max_tokens=4))).finish_reason in {"stop", "length"}

        async def run() -> None:
            with anyio.fail_after(TIMEOUT_S):
                wide = ModelSettings(ctx_size=2048)
                async with EmbeddedModel(self._path, "smollm2", settings=wide, trusted=True) as model:
                    await check(model)

        anyio.run(run)

    def open_model(self) -> AbstractAsyncContextManager[Model]:
        return given(EmbeddedModel(self._path, "smollm2", settings=SMALL, trusted=True))

    def open_slow(self) -> AbstractAsyncContextManager[Model]:
        return self.open_model()


def alive(pid: int) -> bool:
    """A process that is neither gone nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def gone(pid: int, within_s: float = 10) -> None:
    """Return when the process has ended; it need not be a child of ours."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with anyio.fail_after(within_s):
            await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)


@on_anyio
async def test_the_prompt_is_served_from_the_cache(smollm2: Path) -> None:
    async with EmbeddedModel(smollm2, "smollm2", settings=SMALL, trusted=True) as model:
        request = question("Name a fruit. " * 20, max_tokens=4)
        await model.ask(request)
        again = await model.ask(request)
    assert again.usage.prompt_tokens > 60
    assert again.usage.cached_tokens > again.usage.prompt_tokens * 0.9


@pytest.fixture
def broken(smollm2: Path, tmp_path: Path) -> Broken:
    """SmolLM2 after something was done to its bytes."""

    def make(change: Callable[[bytes], bytes]) -> Path:
        (tmp_path / "m.gguf").write_bytes(change(smollm2.read_bytes()))
        return tmp_path / "m.gguf"

    return make


@on_anyio
async def test_no_process_remains(smollm2: Path) -> None:
    async with EmbeddedModel(smollm2, "smollm2", settings=SMALL, trusted=True) as model:
        pid = model.server.pid
        assert pid
        assert alive(pid)
    assert not alive(pid)


@on_anyio
async def test_cancelling_while_it_loads_leaves_nothing(smollm2: Path) -> None:
    loading = anyio.Event()
    model = EmbeddedModel(smollm2, "smollm2", settings=SMALL, trusted=True, on_progress=lambda *_: loading.set())

    async def enter() -> None:
        async with model:
            raise AssertionError("it was to be cancelled")

    async with anyio.create_task_group() as group:
        group.start_soon(enter)
        with anyio.fail_after(10):
            await loading.wait()
            # The process is begun in the next steps of that task; nothing tells when.
            while model.server.pid is None:
                await anyio.lowlevel.checkpoint()
        pid = model.server.pid
        group.cancel_scope.cancel()
    assert not alive(pid)


@on_anyio
async def test_kill_9_of_the_worker_is_noticed_and_mended(smollm2: Path) -> None:
    heard: list[str] = []
    model = EmbeddedModel(
        smollm2, "smollm2", settings=SMALL, trusted=True, on_progress=lambda text, *_: heard.append(text)
    )
    async with model:
        for _ in range(4):
            before = model.server.pid
            assert before
            os.kill(before, signal.SIGKILL)
            assert (await model.ask(question(max_tokens=4))).finish_reason
            assert any(text.startswith("the embedded server was ended by SIGKILL") for text in heard)
            assert model.server.pid != before
        last = model.server.pid
        assert last
    assert not alive(last)


@on_anyio
async def test_a_question_that_kills_the_server_is_given_up(smollm2: Path) -> None:
    async with EmbeddedModel(smollm2, "smollm2", settings=SMALL, trusted=True) as model:

        def kill(piece: str | None) -> None:
            """At each word; one that was on its way when the server ended comes after its end."""
            assert model.server.pid
            if piece is not None:
                with suppress(ProcessLookupError):
                    os.kill(model.server.pid, signal.SIGKILL)

        with pytest.raises(ModelUnavailable, match=r"was ended by SIGKILL.*had been started again 2 times"):
            # long enough that no server has said all of it before this process reads the first word
            await model.ask(question("Count to a hundred.", max_tokens=200), kill)
        assert (await model.ask(question(max_tokens=4))).finish_reason


@on_anyio
async def test_kill_9_amid_an_answer(smollm2: Path) -> None:
    async with EmbeddedModel(smollm2, "smollm2", settings=SMALL, trusted=True) as model:
        first = model.server.pid
        assert first
        killed: list[int] = []

        def kill(_: str | None) -> None:
            if not killed:
                os.kill(first, signal.SIGKILL)
                killed.append(first)

        answer = await model.ask(question("Count to two hundred.", max_tokens=200), kill)
        assert killed
        assert answer.usage.completion_tokens > 0
        assert model.server.pid != first


HOLDER = """
import anyio, sys
from pathlib import Path
from stockade.models.local.embedded import EmbeddedModel

async def main():
    async with EmbeddedModel(Path(sys.argv[1]), "smollm2") as model:
        print(model.server.pid, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


@on_anyio
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
async def test_the_worker_ends_with_its_parent(smollm2: Path, how: signal.Signals) -> None:
    process = subprocess.Popen(  # noqa: ASYNC220 - anyio's own would wait for it to end
        [sys.executable, "-c", HOLDER, str(smollm2)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        pid = int(await anyio.to_thread.run_sync(process.stdout.readline))
        assert alive(pid)
        process.send_signal(how)
        await gone(pid)
        assert not alive(pid)
    finally:
        process.kill()
        process.communicate()


async def one_line(path: Path) -> str:
    """What entering the model says when it cannot be."""
    with pytest.raises(ModelUnavailable) as caught:
        async with EmbeddedModel(path, "broken", settings=SMALL):
            pass
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


@on_anyio
@pytest.mark.parametrize(
    "change",
    [lambda whole: whole[: len(whole) // 2], lambda whole: whole[:1024], lambda _: os.urandom(5000), lambda _: b""],
    ids=["half", "header", "random", "empty"],
)
async def test_broken_files(broken: Broken, change: Callable[[bytes], bytes]) -> None:
    assert "not a usable model file" in await one_line(broken(change))


@on_anyio
async def test_no_file(tmp_path: Path) -> None:
    assert "cannot read" in await one_line(tmp_path / "missing.gguf")
    assert "cannot read" in await one_line(tmp_path)


@on_anyio
async def test_what_only_llama_cpp_can_tell_is_quoted(broken: Broken) -> None:
    path = broken(lambda whole: whole.replace(b"llama.block_count", b"llama.clock_bount", 1))
    assert "llama.block_count" in await one_line(path)


@on_anyio
async def test_flipped_weights_are_noticed_where_the_hash_was_not_compared(broken: Broken) -> None:
    path = broken(lambda whole: whole[:50_000_000] + b"\xff" * 4096 + whole[50_004_096:])
    assert "cannot be loaded" in await one_line(path)


@on_anyio
async def test_other_programs_cannot_use_it_without_the_key(smollm2: Path) -> None:
    async with EmbeddedModel(smollm2, "smollm2", settings=SMALL, trusted=True) as model:
        with pytest.raises(ModelUnavailable, match="refused the key"):
            async with OpenAIModel(model.server.base_url, "smollm2", "wrong"):
                pass


@on_anyio
async def test_cancelling_frees_the_slot(smollm2: Path) -> None:
    async with EmbeddedModel(smollm2, "smollm2", settings=SMALL, trusted=True) as model:
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                await model.ask(question("Count.", max_tokens=900), lambda _: group.cancel_scope.cancel())

            group.start_soon(ask)
        server = model.server
        async with Client(server.base_url, bearer(server.api_key)) as client:
            with anyio.fail_after(5):
                # The server tells nobody when it has noticed: it can only be asked.
                while True:
                    async with client.asked("GET", server.base_url.replace("/v1", "/slots")) as response:
                        if not json.loads(await response.whole(1 << 20))[0]["is_processing"]:
                            break
