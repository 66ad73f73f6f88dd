"""Sandboxes that live on, with the official client: opened and closed by id, programs, files, progress."""

import base64
import os
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client

from stockade.mcp_server.app import make_server
from stockade.mcp_server.boxes import MAX_BOXES, MAX_PROGRAMS, Boxes
from stockade.mcp_server.service import Service
from stockade.runtime.roots import Roots
from stockade.runtime.spec import RunSpec
from stockade_sandbox.processes import descendants
from tests.unit.mcp_server.test_server import data, folder, text

__all__ = ["folder"]
pytestmark = pytest.mark.anyio


class Caller:
    """A client, and one sandbox of it."""

    def __init__(self, client: Client) -> None:
        self.client, self.sandbox = client, ""

    async def open(self, **arguments: Any) -> str:
        self.sandbox = data(await self.client.call_tool("sandbox_open", arguments))["sandbox"]
        return self.sandbox

    async def __call__(self, tool: str, **arguments: Any) -> Any:
        return data(await self.client.call_tool(f"sandbox_{tool}", {"sandbox": self.sandbox, **arguments}))

    async def refused(self, tool: str, **arguments: Any) -> str:
        found = await self.client.call_tool(f"sandbox_{tool}", {"sandbox": self.sandbox, **arguments})
        assert found.is_error
        return text(found)


def server(folder: Path, **more: Any) -> Any:
    return make_server(Service(RunSpec(**more), Roots.of((str(folder.parent),))), only_sandbox=True)


async def test_only_sandboxes_are_offered(folder: Path) -> None:
    async with Client(server(folder)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
    words = ("exec", "open", "close", "run", "start", "poll", "kill", "read", "write", "diff")
    assert names == {f"sandbox_{word}" for word in words}


async def test_a_shell_that_stays_and_a_folder_that_does_not_change(folder: Path) -> None:
    heard: list[str | None] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with Client(server(folder)) as client:
        call = Caller(client)
        await call.open(folder="one")
        assert (await call("run", command="cd /tmp; x=5; f() { echo $x; }"))["exit_code"] == 0
        done = await call("run", command="pwd; f; echo no >&2; exit 3")
        assert (done["exit_code"], done["stdout"]) == (3, "/tmp\n5\nno\n")
        await call("write", path="/workspace/deep/new.txt", content="né\n")
        assert "+né" in (await call("diff"))["result"]
        late = {"sandbox": call.sandbox, "command": "echo first; sleep 1; echo second", "timeout_s": 30}
        assert not (await client.call_tool("sandbox_run", late, progress_callback=progress)).is_error
        assert (await call("run", command="sleep 60", timeout_s=0.5))["timed_out"]
    assert heard[0] == "first"
    assert os.listdir(folder) == ["a.txt"]


async def test_programs_beside_the_shell(folder: Path) -> None:
    async with Client(server(folder)) as client:
        call = Caller(client)
        await call.open()
        number = (await call("start", command="echo begun; read -t 60 line </dev/zero; sleep 1000"))["program"]
        told = await call("poll", program=number, wait_s=30)
        assert (told["running"], told["output"], told["exit_code"]) == (True, "begun\n", None)
        assert (await call("run", command="echo meanwhile"))["stdout"] == "meanwhile\n"
        ended = await call("kill", program=number)
        assert ended["running"] is False
        short = (await call("start", command="echo out; echo err >&2; printf end; exit 4"))["program"]
        found, output = {"running": True}, ""
        while found["running"]:
            found = await call("poll", program=short, wait_s=10)
            output += found["output"]
        assert (output, found["exit_code"]) == ("out\nerr\nend", 4)
        assert (await call("poll", program=short))["output"] == ""
        flood = (await call("start", command="head -c 3000000 /dev/zero | tr '\\0' x; echo"))["program"]
        found = {"running": True}
        while found["running"]:
            found = await call("poll", program=flood, wait_s=10)
        assert found["dropped_bytes"] + (1 << 20) == 3000001
        assert "no program 99" in await call.refused("poll", program=99)


async def test_many_programs_hold_nothing_else_up(folder: Path) -> None:
    """More than a pool of threads has."""
    async with Client(server(folder)) as client:
        call = Caller(client)
        for _ in range(3):
            await call.open()
            for _ in range(MAX_PROGRAMS):
                await call("start", command="echo begun; sleep 1000")
            assert "are running" in await call.refused("start", command="true")
        assert (await call("poll", program=MAX_PROGRAMS, wait_s=300))["output"] == "begun\n"
        with anyio.fail_after(120):
            assert (await call("run", command="echo fine"))["stdout"] == "fine\n"
            await call.open()


async def test_a_flood_of_lines_is_not_told_line_by_line(folder: Path) -> None:
    told: list[str] = []
    async with Boxes(Service(RunSpec(), Roots.of((str(folder),)))) as boxes:
        sandbox = (await boxes.sandbox_open()).sandbox
        done = await boxes.run(told.append, sandbox, "yes | head -n 1000000; echo last", None)
    assert (done.exit_code, done.truncated) == (0, True)
    assert "last" in told
    assert len(told) < 100_000


async def test_a_cancelled_command_ends_and_its_shell_goes_on(folder: Path) -> None:
    begun = anyio.Event()

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        begun.set()

    async with Client(server(folder), mode="legacy") as client:
        call = Caller(client)
        await call.open()
        await call("run", command="x=5")
        async with anyio.create_task_group() as group:
            late = {"sandbox": call.sandbox, "command": "echo begun; sleep 1000; echo never"}
            group.start_soon(partial(client.call_tool, "sandbox_run", late, progress_callback=progress))
            with anyio.fail_after(60):
                await begun.wait()
            group.cancel_scope.cancel()
        assert (await call("run", command="echo $x; pgrep sleep"))["stdout"] == "5\n"


async def test_files_as_text_and_as_bytes(folder: Path) -> None:
    async with Client(server(folder)) as client:
        call = Caller(client)
        await call.open(folder="one", mode="ro")
        assert await call("read", path="a.txt") == {"text": "alpha\n", "base64": None}
        raw = base64.b64encode(b"\xff\0").decode()
        await call("write", path="/tmp/raw", content=raw, encoding="base64")
        assert await call("read", path="/tmp/raw") == {"text": None, "base64": raw}
        assert "no base64" in await call.refused("write", path="/tmp/x", content="?", encoding="base64")
        assert "No such file" in await call.refused("read", path="/nowhere")
        assert "Read-only" in await call.refused("write", path="a.txt", content="x")


async def test_no_more_than_so_many_and_none_after_its_end(folder: Path) -> None:
    async with Client(server(folder)) as client:
        call = Caller(client)
        names = [await call.open() for _ in range(MAX_BOXES)]
        assert len(set(names)) == MAX_BOXES
        assert "are open" in text(await client.call_tool("sandbox_open", {}))
        await call("start", command="sleep 1000")
        await call("close")
        assert "no open sandbox" in await call.refused("run", command="true")
        assert "not among the folders" in text(await client.call_tool("sandbox_open", {"folder": "../secret"}))
        await call.open()
        await call("start", command="sleep 1000")
    with anyio.fail_after(60):
        while any(_is_sandbox(pid) for pid in descendants(os.getpid())):  # noqa: ASYNC110
            await anyio.sleep(0.05)


def _is_sandbox(pid: int) -> bool:
    try:
        return b"bwrap" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


async def test_what_is_secret_is_masked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sesame-opens-it")
    async with Client(server(folder, redact=("MY_KEY",), env=("MY_KEY",))) as client:
        call = Caller(client)
        await call.open()
        assert "sesame" not in (await call("run", command="echo $MY_KEY"))["stdout"]
        number = (await call("start", command="printf sesame-; sleep 0.5; echo opens-it; env"))["program"]
        output, found = "", {"running": True}
        while found["running"]:
            found = await call("poll", program=number, wait_s=0)
            output += found["output"]
        assert "sesame" not in output
        assert "MY_KEY" in output
