"""The shared model server under kill -9 and races: real processes, the real SmolLM2, a runtime folder for each test."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from stockade.core.errors import ModelUnavailable
from stockade.models.local import launch_spec, server_lease
from stockade.models.local.catalogue import CATALOGUE
from stockade.models.local.embedded import EmbeddedModel
from stockade.models.local.fetch import fetch
from stockade.models.local.server_lease import Running, connect, listen, running, runtime_folder, sockets, stop_all_idle
from stockade.models.settings import ModelSettings
from stockade.testing.conformance.model import question
from tests.cli.conftest import Stage, stage, until_event

__all__ = ["stage"]
pytestmark = pytest.mark.anyio
MODELS = Path(os.environ.get("STOCKADE_TEST_MODELS") or Path.home() / ".cache/stockade-dev/models")
KEPT = ModelSettings(ctx_size=512, keep_warm_s=3600)
HOLDER = """
import anyio, sys
from pathlib import Path
from stockade.models.local.embedded import EmbeddedModel
from stockade.models.settings import ModelSettings

async def main():
    settings = ModelSettings(ctx_size=512, keep_warm_s=float(sys.argv[2]))
    async with EmbeddedModel(Path(sys.argv[1]), "smollm2", settings=settings, trusted=True) as model:
        print(model.server.pid, flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)

anyio.run(main)
"""


@pytest.fixture(scope="module")
def smollm2() -> Path:
    return anyio.run(partial(fetch, CATALOGUE["smollm2"], folder=MODELS))


@pytest.fixture(autouse=True)
def _nothing_left(_own_home: Path) -> Iterator[None]:
    yield
    stop_all_idle()
    assert sockets(runtime_folder()) == []


def open_model(path: Path, settings: ModelSettings = KEPT, heard: list[str] | None = None) -> EmbeddedModel:
    return EmbeddedModel(
        path, "smollm2", settings=settings, trusted=True,
        on_progress=lambda text, *_: heard.append(text) if heard is not None else None,
    )  # fmt: skip


@contextmanager
def holder(path: Path, keep_s: float = 0.0) -> "Iterator[subprocess.Popen[bytes]]":
    """Another process that holds the model until its stdin is closed; its first line is the server's pid."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), str(keep_s)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


async def told_pid(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdout is not None
    return int(await anyio.to_thread.run_sync(process.stdout.readline))


@asynccontextmanager
async def ending(pid: int, within_s: float = 20) -> AsyncIterator[None]:
    """What happens inside makes this process end."""
    descriptor = os.pidfd_open(pid)
    try:
        yield
        with anyio.fail_after(within_s):
            await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def only() -> Running:
    (server,) = running()
    return server


async def test_a_later_user_finds_it_warm(smollm2: Path) -> None:
    heard: list[str] = []
    async with open_model(smollm2, heard=heard) as model:
        pid = model.server.pid
        assert only().users == 1
    assert heard == ["loading smollm2 (98 MB)"]
    assert only().left_s is not None
    async with open_model(smollm2, heard=heard) as model:
        assert model.server.pid == pid
        assert (await model.ask(question(max_tokens=4))).finish_reason
    assert len(heard) == 1


async def test_it_ends_with_its_last_user(smollm2: Path) -> None:
    settings = KEPT.model_copy(update={"keep_warm_s": 0.0})
    async with open_model(smollm2, settings) as model:
        pid = model.server.pid
        assert pid
        async with open_model(smollm2, settings) as other:
            assert other.server.pid == pid
            assert {model.server.slot, other.server.slot} == {0, 1}
            assert only().users == 2
        assert (await model.ask(question(max_tokens=4))).finish_reason
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert running() == []


async def test_other_settings_are_another_server(smollm2: Path) -> None:
    async with open_model(smollm2) as model:
        async with open_model(smollm2, KEPT.model_copy(update={"ctx_size": 1024})) as other:
            assert other.server.pid != model.server.pid
            assert {server.window for server in running()} == {512, 1024}


ALONE = KEPT.model_copy(update={"alone": True})


async def test_a_run_with_a_seed_shares_its_server_with_nobody(smollm2: Path) -> None:
    async with open_model(smollm2) as plain, open_model(smollm2, ALONE) as seeded:
        async with open_model(smollm2) as beside, open_model(smollm2, ALONE) as another:
            assert beside.server.pid == plain.server.pid
            assert len({plain.server.pid, seeded.server.pid, another.server.pid}) == 3
        assert (seeded.server.facts["slots"], seeded.server.slot) == (1, 0)
        assert plain.server.facts["slots"] > 1
        first = seeded.server.pid
    async with open_model(smollm2, ALONE) as later:
        assert later.server.pid == first
    assert len(running()) == 3


async def test_two_with_a_seed_that_start_at_once_have_two(smollm2: Path) -> None:
    pids: list[int | None] = []
    both = anyio.Event()

    async def run() -> None:
        async with open_model(smollm2, ALONE) as model:
            pids.append(model.server.pid)
            if len(pids) == 2:
                both.set()
            with anyio.fail_after(60):
                await both.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        group.start_soon(run)
    assert len(set(pids)) == 2


async def test_without_memory_for_a_second_one_a_seed_shares_and_says_so(
    smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    async with open_model(smollm2) as plain:
        monkeypatch.setattr(launch_spec, "available_bytes", lambda: 1000)
        async with open_model(smollm2, ALONE, heard) as seeded:
            assert seeded.server.pid == plain.server.pid
    (line,) = heard
    assert line.startswith("no memory for a server of this run alone: runs beside it may change what --seed gives (")
    stop_all_idle()
    with pytest.raises(ModelUnavailable, match="needs about"):
        async with open_model(smollm2, ALONE):
            pass


async def test_two_that_start_at_once_share_one(smollm2: Path) -> None:
    with holder(smollm2) as one, holder(smollm2) as two, holder(smollm2) as three:
        pids = {await told_pid(process) for process in (one, two, three)}
        assert len(pids) == 1
        assert only().users == 3
        async with ending(pids.pop()):
            for process in (one, two, three):
                assert process.stdin is not None
                process.stdin.close()


async def test_who_comes_as_its_last_user_leaves_has_the_next_one(smollm2: Path) -> None:
    """Both are heard at once: the supervisor is stopped until they have spoken."""
    settings = KEPT.model_copy(update={"keep_warm_s": 0.0})
    last, later = open_model(smollm2, settings), open_model(smollm2, settings)
    await last.__aenter__()
    supervisor = only().keeper
    os.kill(supervisor, signal.SIGSTOP)
    async with anyio.create_task_group() as group:
        group.start_soon(last.__aexit__, None, None, None)
        group.start_soon(later.__aenter__)
        with anyio.fail_after(20):
            while last.server._lease is not None or later.server._lease is None:
                await anyio.lowlevel.checkpoint()
        os.kill(supervisor, signal.SIGCONT)
    assert (await later.ask(question(max_tokens=4))).finish_reason
    assert only().pid == later.server.pid
    await later.__aexit__(None, None, None)
    assert running() == []


async def test_one_that_is_ending_is_not_running(smollm2: Path) -> None:
    model = open_model(smollm2, KEPT.model_copy(update={"keep_warm_s": 0.0}))
    await model.__aenter__()
    (path,) = sockets(runtime_folder())
    supervisor = only().keeper
    os.kill(supervisor, signal.SIGSTOP)
    async with anyio.create_task_group() as group:
        group.start_soon(model.__aexit__, None, None, None)
        while model.server._lease is not None:
            await anyio.lowlevel.checkpoint()
        connection = connect(path)
        assert connection is not None
        connection.sendall(b'{"want": "status"}\n')
        os.kill(supervisor, signal.SIGCONT)
        with connection:
            connection.settimeout(20)
            assert await anyio.to_thread.run_sync(connection.recv, 1) == b""
    assert sockets(runtime_folder()) == []


async def test_a_supervisor_without_a_first_user_ends() -> None:
    """Whoever started it was killed before he could say what he wants."""
    path = runtime_folder() / "a.sock"
    server_lease._start(path, "m").wait()
    (server,) = running()
    assert (server.state, server.users, server.pid) == ("empty", 0, None)
    async with ending(server.keeper):
        pass
    assert sockets(runtime_folder()) == []


async def test_kill_9_of_its_last_user(smollm2: Path) -> None:
    with holder(smollm2, keep_s=0.5) as process:
        pid = await told_pid(process)
        async with ending(pid):
            process.kill()
    assert running() == []


async def test_kill_9_of_one_user_leaves_it_to_the_other(smollm2: Path) -> None:
    with holder(smollm2) as process:
        pid = await told_pid(process)
        async with open_model(smollm2, KEPT.model_copy(update={"keep_warm_s": 0.0})) as model:
            assert model.server.pid == pid
            async with ending(process.pid):
                process.kill()
            assert (await model.ask(question(max_tokens=4))).finish_reason
            assert only().users == 1


async def test_kill_9_of_its_keeper(smollm2: Path) -> None:
    async with open_model(smollm2) as model:
        before = model.server.pid
        assert before
        async with ending(before):
            os.kill(only().keeper, signal.SIGKILL)
        assert (await model.ask(question(max_tokens=4))).finish_reason
        assert model.server.pid != before
        assert only().pid == model.server.pid


async def test_users_of_a_server_that_dies_share_the_next_one(smollm2: Path) -> None:
    async with open_model(smollm2) as one, open_model(smollm2) as two:
        assert one.server.pid
        os.kill(one.server.pid, signal.SIGKILL)
        async with anyio.create_task_group() as group:
            group.start_soon(one.ask, question(max_tokens=4))
            group.start_soon(two.ask, question(max_tokens=4))
        assert one.server.pid == two.server.pid
        assert only().users == 2


async def test_kill_9_while_it_is_loaded(smollm2: Path) -> None:
    """Whoever waits with the killed one gets the model all the same."""
    heard: list[str] = []
    async with anyio.create_task_group() as group:
        with holder(smollm2) as process:
            while not sockets(runtime_folder()):  # nothing tells when it begins
                await anyio.lowlevel.checkpoint()
            model = open_model(smollm2, KEPT.model_copy(update={"keep_warm_s": 0.0}), heard)
            group.start_soon(model.__aenter__)
            while model.server.pid is None:
                await anyio.lowlevel.checkpoint()
            process.kill()
    assert (await model.ask(question(max_tokens=4))).finish_reason
    await model.__aexit__(None, None, None)


async def test_only_those_that_nobody_uses_are_ended(smollm2: Path) -> None:
    async with open_model(smollm2) as model:
        async with open_model(smollm2, KEPT.model_copy(update={"ctx_size": 1024})):
            pass
        (ended,) = stop_all_idle()
        assert ended.window == 1024
        assert only().pid == model.server.pid
    assert [server.window for server in stop_all_idle(only().path)] == [512]
    assert running() == []


async def test_doctor_clean_leaves_servers_to_their_own_time(smollm2: Path) -> None:
    async with open_model(smollm2):
        pass
    before = only()
    done = await anyio.run_process([sys.executable, "-m", "stockade.cli", "doctor", "--clean"])
    # Of killed processes of other tests: their control groups, and what engines were given (host_stage.py).
    others = (b"removed the control group ", b"removed /run/stockade/stockade-")
    said = [line for line in done.stdout.splitlines() if not line.startswith(others)]
    assert (said, only().pid) == ([], before.pid)


async def test_what_a_killed_keeper_left_is_taken_over(smollm2: Path) -> None:
    async with open_model(smollm2):
        (path,) = sockets(runtime_folder())
    stop_all_idle()
    listen(path).close()
    assert connect(path) is None
    assert running() == []
    async with open_model(smollm2) as model:
        assert (await model.ask(question(max_tokens=4))).finish_reason


async def test_a_folder_that_others_can_write_is_not_trusted(smollm2: Path) -> None:
    folder = runtime_folder()
    folder.chmod(0o777)
    with pytest.raises(ModelUnavailable, match="not a folder of yours alone"):
        async with open_model(smollm2):
            pass
    folder.chmod(0o700)


async def test_nonsense_does_not_end_a_server(smollm2: Path) -> None:
    async with open_model(smollm2) as model:
        (path,) = sockets(runtime_folder())
        for line in (b"\n", b"hello\n", b'{"want": 1}\n', b"[]\n", b'{"want": "lease"}\n', b"", b"x" * 3_000_000):
            connection = connect(path)
            assert connection is not None
            with connection:
                try:
                    connection.sendall(line)
                except (BrokenPipeError, ConnectionResetError):
                    assert len(line) > 1 << 20
        assert (await model.ask(question(max_tokens=4))).finish_reason
        assert only().users == 1


def test_kill_9_of_the_server_amid_a_turn_of_a_real_run(smollm2: Path, stage: Stage) -> None:
    """The run goes on and ends by name, with every turn on record."""
    process = stage.start(
        "run", "List the files, then count them.", "--folder", str(stage.demo), "--model", f"gguf/{smollm2}",
        "--max-turns", "2", "--ctx-size", "2048", "--json",
    )  # fmt: skip
    until_event(process, "model_started")
    (server,) = running()
    assert server.pid
    os.kill(server.pid, signal.SIGKILL)
    out, err = process.communicate(timeout=550)
    result = json.loads(out.splitlines()[-1])
    assert result["status"] == "done" or (result["status"], result["reason"]) == ("stopped", "turns"), err
    assert running() == []
