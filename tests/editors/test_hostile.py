"""Editors that send what is no message, do not read, or are gone: each is answered or ended, and nothing is lost."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from acp import RequestError, text_block

from tests.editors.conftest import PATIENCE_S, Stand, finish, shell

pytestmark = pytest.mark.anyio
_BROKEN, _NO_REQUEST, _UNKNOWN, _INVALID = -32700, -32600, -32601, -32602


@dataclass
class Raw:
    """The agent's process, byte by byte. `asides`: what came beside the answers."""

    process: asyncio.subprocess.Process
    asides: list[dict[str, Any]] = field(default_factory=list)
    number: int = 0

    def send(self, *lines: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(line + b"\n" for line in lines))

    async def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(await self.process.stdout.readline())
        return message

    def ask(self, method: Any, **params: Any) -> int:
        self.number += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}).encode())
        return self.number

    async def until(self, number: int) -> dict[str, Any]:
        """The answer of that number."""
        while (message := await self.next()).get("id") != number or "method" in message:
            self.asides.append(message)
        return message

    async def call(self, method: Any, **params: Any) -> dict[str, Any]:
        return await self.until(self.ask(method, **params))

    async def begun(self, folder: Any) -> str:
        """A session in it."""
        await self.call("initialize", protocolVersion=1)
        answer = await self.call("session/new", cwd=str(folder), mcpServers=[])
        return str(answer["result"]["sessionId"])

    def prompt(self, session: str) -> int:
        return self.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}])


@asynccontextmanager
async def raw(stand: Stand, *answers: dict[str, Any], flags: tuple[str, ...] = ()) -> AsyncIterator[Raw]:
    """Ends with status 0 when it is left, unless the test has ended it."""
    pipe = asyncio.subprocess.PIPE
    with (stand.tmp / "stderr").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *stand.arguments(*flags, model=stand.script(*answers)), env=stand.environment,
            cwd=stand.tmp, stdin=pipe, stdout=pipe, stderr=log, limit=50 << 20,
        )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield Raw(process)
            if process.returncode is None:
                assert process.stdin is not None
                process.stdin.close()
                assert await process.wait() == 0, stand.errors
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert "bug in Stockade" not in stand.errors
    assert "Traceback" not in stand.errors


async def test_what_is_no_message_is_answered_and_the_next_is_read(stand: Stand) -> None:
    lines = {
        b"{": _BROKEN, b"\xff\xfe\x00": _BROKEN, b"[" * 200_000: _BROKEN, b"nonsense": _BROKEN, b"NaN": _NO_REQUEST,
        b"[]": _NO_REQUEST, b'[{"jsonrpc": "2.0", "id": 1, "method": "initialize"}]': _NO_REQUEST, b"null": _NO_REQUEST,
        b"7": _NO_REQUEST, b'"text"': _NO_REQUEST, b'{"id": 1, "method": 7}': _NO_REQUEST,
        b'{"method": {}}': _NO_REQUEST,
    }  # fmt: skip
    async with raw(stand, finish("done")) as agent:
        agent.send(b"", b"   ", *lines)
        for line, code in lines.items():
            message = await agent.next()
            assert (message["id"], message["error"]["code"]) == (None, code), line[:50]
        answers = (b"{}", b'{"id": 99, "result": {}}', b'{"id": 98, "error": 5}', b'{"id": {}, "result": 1}')
        agent.send(*answers)  # to what was never asked
        assert (await agent.call("initialize", protocolVersion=1))["result"]["protocolVersion"] == 1


async def test_a_line_of_any_length_takes_a_bounded_room(stand: Stand) -> None:
    async with raw(stand, finish("done")) as agent:
        await agent.call("initialize", protocolVersion=1)
        before = _memory(agent.process.pid)
        for _ in range(8):
            agent.send(b"x" * (33 << 20))
            assert agent.process.stdin is not None
            await agent.process.stdin.drain()
            assert "longer than" in (await agent.next())["error"]["message"]
        assert _memory(agent.process.pid) - before < 100 << 20
        assert "result" in await agent.call("session/new", cwd=str(stand.demo), mcpServers=[])


async def test_each_wrong_request_has_its_error(stand: Stand) -> None:
    text = [{"type": "text", "text": "go"}]
    async with raw(stand, finish("done")) as agent:
        session = await agent.begun(stand.demo)
        wrong: list[tuple[str, dict[str, Any], int]] = [
            ("nothing/known", {}, _UNKNOWN),
            ("_stockade/own", {}, _UNKNOWN),
            ("fs/read_text_file", {"sessionId": session, "path": "/etc/passwd"}, _UNKNOWN),
            ("initialize", {"protocolVersion": -3}, _INVALID),
            ("session/new", {"cwd": 7, "mcpServers": []}, _INVALID),
            ("session/new", {"cwd": str(stand.demo), "mcpServers": "none"}, _INVALID),
            ("session/new", {"cwd": "demo", "mcpServers": []}, _INVALID),
            ("session/new", {"cwd": "/", "mcpServers": []}, _INVALID),
            ("session/new", {"cwd": f"{stand.demo}\0", "mcpServers": []}, _INVALID),
            ("session/new", {"cwd": f"{stand.demo}/nowhere", "mcpServers": []}, _INVALID),
            ("session/new", {"cwd": f"{stand.demo}/{'a' * 300}", "mcpServers": []}, _INVALID),
            ("session/prompt", {"sessionId": session, "content": text}, _INVALID),
            ("session/prompt", {"sessionId": session, "prompt": []}, _INVALID),
            ("session/prompt", {"sessionId": session, "prompt": [{"type": "smell"}]}, _INVALID),
            ("session/prompt", {"sessionId": "nobody", "prompt": text}, _INVALID),
            ("session/prompt", {"sessionId": "../../etc/passwd", "prompt": text}, _INVALID),
            ("session/load", {"sessionId": "../../etc", "cwd": str(stand.demo), "mcpServers": []}, _INVALID),
            ("session/load", {"sessionId": "a\0b", "cwd": str(stand.demo), "mcpServers": []}, _INVALID),
            ("session/resume", {"sessionId": "", "cwd": str(stand.demo)}, _INVALID),
            ("session/fork", {"sessionId": session, "cwd": str(stand.demo)}, _INVALID),
            ("session/close", {"sessionId": "nobody"}, _INVALID),
            ("session/set_mode", {"sessionId": session, "modeId": "root"}, _INVALID),
            ("session/set_config_option", {"sessionId": session, "configId": "mode", "value": []}, _INVALID),
        ]
        for odd in ("", "x", 7):
            assert (await agent.call("initialize", protocolVersion=1, clientCapabilities=odd))["result"]
        for method, params, code in wrong:
            error = (await agent.call(method, **params))["error"]
            assert error["code"] == code, (method, params, error)
        agent.send(b'{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": 7}}')
        agent.send(b'{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "nobody"}}')
        agent.send(b'{"jsonrpc": "2.0", "method": "nothing/known"}')
        assert (await agent.until(agent.prompt(session)))["result"]["stopReason"] == "end_turn"


@pytest.mark.parametrize("reply", ['"result": 7', '"result": {"outcome": "apply"}', '"error": "no"', '"result": null'])
async def test_a_question_answered_by_nonsense_changes_nothing(stand: Stand, reply: str) -> None:
    async with raw(stand, shell("echo new > new.txt"), finish("done")) as agent:
        turn = agent.prompt(await agent.begun(stand.demo))
        while (message := await agent.next()).get("method") != "session/request_permission":
            pass
        agent.send(f'{{"jsonrpc": "2.0", "id": {message["id"]}, {reply}}}'.encode())
        assert (await agent.until(turn))["result"]["stopReason"] == "end_turn"
        assert sorted(stand.tree()) == ["data.csv"]


@pytest.mark.parametrize("how", ["leaves", "stops reading", "ends it", "kills it"])
async def test_an_editor_that_is_gone_leaves_nothing_running_and_loses_nothing(stand: Stand, how: str) -> None:
    answers = (shell("echo new > new.txt"), shell("echo begun; sleep 1000"), shell("cat new.txt"), finish("done"))
    async with raw(stand, *answers) as agent:
        session = await agent.begun(stand.demo)
        agent.prompt(session)
        while "begun" not in str((await agent.next()).get("params", {}).get("update", {}).get("content", "")[-1:]):
            pass
        process = agent.process
        assert process.stdin is not None
        if how == "leaves":
            process.stdin.close()
        elif how == "stops reading":
            process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
            process.stdin.close()
        else:
            process.send_signal(signal.SIGTERM if how == "ends it" else signal.SIGKILL)
        assert await process.wait() in {"ends it": (130,), "kills it": (-9,)}.get(how, (0,)), stand.errors
    async with stand.editor(*answers, choose=lambda call, options: "apply") as (editor_agent, editor):
        await editor_agent.load_session(cwd=str(stand.demo), session_id=session)
        assert "echo new > new.txt" in [call["title"] for call in editor.calls().values()]
        await editor_agent.prompt(session_id=session, prompt=[text_block("go on")])
        assert stand.tree() == {"data.csv": "a\nb\nc\n", "new.txt": "new\n"}
    assert stand.layers() == []


async def test_an_editor_that_does_not_read_holds_the_run_and_misses_nothing(stand: Stand) -> None:
    lines = 300_000
    many = f"seq {lines} | while read n; do echo line $n; done > /tmp/x; cat /tmp/x"
    async with raw(stand, *[shell(f"echo step {n}; {many}") for n in range(8)], finish("done")) as agent:
        session = await agent.begun(stand.demo)
        turn = agent.prompt(session)
        await agent.next()
        before = _memory(agent.process.pid)
        while not (stand.tmp / "STATE" / "stockade" / "runs" / session).exists():  # noqa: ASYNC110 (a file is waited for)
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)  # it works on, and nobody reads
        assert _memory(agent.process.pid) - before < 150 << 20
        assert (await agent.until(turn))["result"]["stopReason"] == "end_turn"
        begun = [
            it for it in agent.asides if it.get("params", {}).get("update", {}).get("sessionUpdate") == "tool_call"
        ]
        assert [it["params"]["update"]["title"].split(";")[0] for it in begun] == [f"echo step {n}" for n in range(8)]


async def test_a_run_under_way_elsewhere_is_not_taken(stand: Stand) -> None:
    async with raw(stand, shell("echo begun; sleep 1000"), finish("done")) as agent:
        session = await agent.begun(stand.demo)
        turn = agent.prompt(session)
        while (await agent.next()).get("params", {}).get("update", {}).get("sessionUpdate") != "tool_call":
            pass
        async with stand.editor(finish("done")) as (other, _):
            for open_again in (other.load_session, other.resume_session):
                with pytest.raises(RequestError, match="is under way in another process"):
                    await open_again(cwd=str(stand.demo), session_id=session)
        agent.send(b'{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "%s"}}' % session.encode())
        assert (await agent.until(turn))["result"]["stopReason"] == "cancelled"
    async with stand.editor(finish("done")) as (other, _):
        with pytest.raises(RequestError, match=f"works in {stand.demo}, not in {stand.tmp}"):
            await other.load_session(cwd=str(stand.tmp), session_id=session)


def _memory(pid: int) -> int:
    """What a process has of its own, in bytes."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
