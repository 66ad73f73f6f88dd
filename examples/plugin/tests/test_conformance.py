"""Each part under the suite of its port, and hook and bot in a run."""

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from stockade import Bot, WritingBot
from stockade.extend import (
    AnswerProtocol,
    Finish,
    Hook,
    Model,
    ModelContext,
    Network,
    OnNetwork,
    Policy,
    PolicyNotEnforceable,
    Sandbox,
    Shell,
    Toolbox,
    reviewer,
)
from stockade.extend import Bot as Driver
from stockade.testing import ScriptedModel, say, steps
from stockade.testing.conformance import (
    AnswerConformance,
    BotConformance,
    Call,
    EndConformance,
    ExecConformance,
    FolderConformance,
    HookConformance,
    ModelConformance,
    SealConformance,
    ShellConformance,
    ToolboxConformance,
    fill,
    given,
)
from stockade_example.answers import CallTags
from stockade_example.bot import COUNTER, CountsTwice
from stockade_example.hook import NoLockFiles
from stockade_example.model import Parrot
from stockade_example.sandbox import OFFLINE
from stockade_example.tool import count_words

PARROT = ModelContext("parrot")


class TestParrot(ModelConformance):
    def open_model(self) -> AbstractAsyncContextManager[Model]:
        return given(Parrot("hello", PARROT))

    def open_slow(self) -> AbstractAsyncContextManager[Model]:
        return given(Parrot("hello", PARROT, delay_s=1.0))


class TestCallTags(AnswerConformance):
    @pytest.fixture
    def protocol(self) -> AnswerProtocol:
        return CallTags()


class TestCountWords(ToolboxConformance):
    @pytest.fixture
    def toolbox(self) -> Toolbox:
        return count_words

    @pytest.fixture
    def good(self) -> Call:
        return "count_words", {"text": "one two three"}, "3"


class TestNoLockFiles(HookConformance):
    def make_hook(self) -> Hook:
        return NoLockFiles()


class TestCountsTwice(BotConformance):
    def make_bot(self) -> Driver:
        return CountsTwice()

    @property
    def script(self) -> Sequence[str]:
        return [steps(Shell(command="ls")), steps(Finish(answer="2")), steps(Finish(answer="2"))]


class OfflineBench:
    """How the suite makes a sandbox of ours, kills it, and sees what it left."""

    def __init__(self, folder: Path, base: Path) -> None:
        self.folder, self._base = folder, base
        self._pids: set[int] = set()

    @asynccontextmanager
    async def make(self, policy: Policy, on_network: OnNetwork | None = None) -> AsyncIterator[Sandbox]:
        sandbox = OFFLINE.prepare(policy, self._base, None)
        layers = sandbox.layers
        try:
            async with sandbox:
                self._pids.add(self._pid(sandbox))
                yield sandbox
        finally:
            for layer in layers:
                reviewer().discard(layer)

    def kill(self, sandbox: Sandbox) -> None:
        os.kill(self._pid(sandbox), signal.SIGKILL)

    def _pid(self, sandbox: Sandbox) -> int:
        return int(getattr(sandbox, "host_pid", 0))

    def traces(self) -> set[str]:
        alive = {f"process {pid}" for pid in self._pids if Path(f"/proc/{pid}").exists()}
        files = {str(path) for path in self._base.rglob("*") if "trial" not in path.name}
        return {*alive, *files, f"{len(os.listdir('/proc/self/fd'))} descriptors"}


class TestOffline(ShellConformance, ExecConformance, FolderConformance, SealConformance, EndConformance):
    """All but the suite of the network, which this backend refuses."""

    @pytest.fixture
    def bench(self, tmp_path: Path) -> OfflineBench:
        base = tmp_path / "layers"
        base.mkdir(mode=0o700)
        return OfflineBench(fill(tmp_path / "folder"), base)


def test_a_network_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(PolicyNotEnforceable, match="no network for bots"):
        OFFLINE.prepare(Policy(network=Network(mode="open")), tmp_path, None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """To work in, with the user's own folders elsewhere."""
    for name in ("STATE", "CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    place = tmp_path / "demo"
    place.mkdir()
    (place / "data.csv").write_text("a,b\n1,2\n")
    return place


def test_all_of_it_from_python(folder: Path) -> None:
    model = ScriptedModel([
        say("write_file", path="x.lock", content="1"), say("count_words", text="a b c"), say("finish", answer="3"),
    ])  # fmt: skip
    model.info = model.info.model_copy(update={"enforces_schema": True})
    bot = WritingBot(folder=folder, model=model, tools=[count_words], hooks=[NoLockFiles()], sandbox="offline")
    result = bot.run("count")
    assert (bool(result), result.answer, result.changes) == (True, "3", ())
    seen = [one.observation for one in result.log if one.observation is not None]
    assert [(one.kind, getattr(one, "by", None), getattr(one, "text", None)) for one in seen] == [
        ("refused", "no_lock_files", None),
        ("tool", None, "3"),
    ]


def test_model_and_protocol_by_name_from_python(folder: Path) -> None:
    assert (Bot(folder=folder, model="parrot/wc -l < data.csv").run("count").answer or "").endswith("\n2")
    said = '<call>{"tool": "finish", "answer": "two"}</call>'
    assert Bot(folder=folder, model=f"parrot/{said}", answers="call-tag").run("count").answer == "two"


def test_the_bot_cannot_write() -> None:
    assert (COUNTER.folder_mode, COUNTER.tools[-1]) == ("ro", "finish")
