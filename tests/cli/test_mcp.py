"""`stockade mcp` as a client starts it: a process that speaks the protocol on its standard streams, nothing else."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult, TextContent

from stockade_sandbox.processes import descendants

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "TMP").mkdir()
    (tmp_path / "work" / "a.txt").write_text("alpha\n")
    call = {"function": {"name": "shell", "arguments": json.dumps({"command": "sleep 100"})}}
    (tmp_path / "script.jsonl").write_text(json.dumps({"tool_calls": [call]}) + "\n")
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    return {
        **os.environ,
        "TMPDIR": str(home / "TMP"),
        **{f"XDG_{name}_HOME": str(home / name) for name in ("STATE", "CONFIG", "CACHE", "DATA")},
    }


def arguments(home: Path, *more: str) -> list[str]:
    script = f"scripted/{home / 'script.jsonl'}"
    return [
        "-m",
        "stockade.cli",
        "mcp",
        "--folder",
        str(home / "work"),
        "--model",
        script,
        "--answers",
        "native",
        *more,
    ]


def text(result: CallToolResult) -> str:
    return "\n".join(one.text for one in result.content if isinstance(one, TextContent))


@pytest.mark.anyio
async def test_the_official_client_starts_it(home: Path) -> None:
    command = StdioServerParameters(command=sys.executable, args=arguments(home), env=environment(home))
    async with Client(command) as client:
        found = await client.call_tool("sandbox_exec", {"command": "cat a.txt", "folder": "."})
        assert found.structured_content is not None
        assert found.structured_content["stdout"] == "alpha\n"
        refused = await client.call_tool("sandbox_exec", {"command": "ls", "folder": "/"})
        assert refused.is_error
        assert "not among the folders" in text(refused)


@pytest.fixture
def server(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, *arguments(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(home),
    ) as process:
        yield process
        process.kill()


def pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def send(process: subprocess.Popen[bytes], *messages: Any) -> None:
    for message in messages:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        pipe(process.stdin).write(line + b"\n")
    pipe(process.stdin).flush()


def received(process: subprocess.Popen[bytes], number: int) -> dict[str, Any]:
    """The answer to a request; every line on the way is a message of the protocol."""
    while line := pipe(process.stdout).readline():
        message: dict[str, Any] = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        if message.get("id") == number:
            return message
    raise AssertionError(pipe(process.stderr).read().decode())


def call(number: int, tool: str, **given: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": given, "_meta": {"progressToken": number}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def test_garbage_is_passed_over_and_output_is_the_protocol_alone(server: subprocess.Popen[bytes]) -> None:
    send(server, b"garbage", b"\xff\xfe{", b"[" * 100_000, b"x" * (9 << 20), b"", HELLO, READY)
    assert received(server, 1)["result"]["serverInfo"]["name"] == "stockade"
    send(server, call(2, "no_such_tool"), call(3, "sandbox_exec", command="echo fine"))
    answers = [received(server, 3)]
    assert answers[0]["result"]["structuredContent"]["stdout"] == "fine\n"
    pipe(server.stdin).close()
    assert server.wait(30) == 0
    assert b"Traceback" not in pipe(server.stderr).read()


WRONG = [
    (b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": ["x"]}', -32600),
    (b'{"jsonrpc": "2.0", "id": 7, "method": 5}', -32600),
    (b'{"jsonrpc": "1.0", "id": 7, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {"x": "\\ud800"}}', -32700),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {"x": ' + b"[" * 500 + b"]" * 500 + b"}}", -32700),
    (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', None),
    (b'[{"jsonrpc": "2.0", "id": 7, "method": "ping"}]', None),
    (b"garbage", None),
    (b"\xff\xfe{", None),
    (b"[" * 100_000, None),
    (b"x" * (65 << 20), None),
]


def test_whatever_is_no_message_is_answered(server: subprocess.Popen[bytes]) -> None:
    """By its id, so that nobody waits for ever; where it has none that can be read, as JSON-RPC has it."""
    for line, code in WRONG:
        send(server, line)
        answered = json.loads(pipe(server.stdout).readline())
        assert answered["id"] == (None if code is None else 7)
        assert answered["error"]["code"] in ((-32600, -32700) if code is None else (code,))
        assert answered["error"]["message"]
    send(server, HELLO)
    received(server, 1)


def test_a_client_that_is_gone_leaves_no_sandbox(server: subprocess.Popen[bytes], home: Path) -> None:
    send(server, HELLO, READY)
    for number in (2, 3):
        send(server, call(number, "sandbox_open"))
        sandbox = received(server, number)["result"]["structuredContent"]["sandbox"]
        send(server, call(10 + number, "sandbox_start", sandbox=sandbox, command="echo begun; sleep 1000"))
        program = received(server, 10 + number)["result"]["structuredContent"]["program"]
        send(server, call(20 + number, "sandbox_poll", sandbox=sandbox, program=program, wait_s=60))
        assert received(server, 20 + number)["result"]["structuredContent"]["output"] == "begun\n"
        send(server, call(30 + number, "sandbox_run", sandbox=sandbox, command="sleep 1000"))
    began = descendants(server.pid)
    assert began
    send(server, call(40, "sandbox_open"))  # under way when the client goes
    pipe(server.stdin).close()
    assert server.wait(60) == 0
    assert not [pid for pid in began if Path(f"/proc/{pid}").exists()]
    assert not list((home / "TMP").iterdir())


def test_a_client_that_is_gone_ends_what_it_began(server: subprocess.Popen[bytes], home: Path) -> None:
    send(server, HELLO, READY, call(2, "run_bot", task="wait", folder="."))
    while line := pipe(server.stdout).readline():
        if b"shell" in line:
            break
    assert line, pipe(server.stderr).read().decode()
    pipe(server.stdin).close()
    assert server.wait(60) == 0
    listed = subprocess.run(
        [sys.executable, "-m", "stockade.cli", "runs", "list", "--json"],
        env=environment(home),
        capture_output=True,
        check=True,
    )
    assert json.loads(listed.stdout)["status"] == "stopped"


def test_a_signal_ends_it(server: subprocess.Popen[bytes]) -> None:
    send(server, HELLO)
    received(server, 1)
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 130
    assert pipe(server.stdout).read() == b""


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--folder", "/"], "too much"),
        (["--folder", ".:rw"], "may not be given rw"),
        (["--folder", "/no/such/place"], "no such folder"),
    ],
)
def test_what_it_cannot_serve_is_said_on_stderr(home: Path, more: list[str], words: str) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "stockade.cli", "mcp", *more],
        env=environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (2, "")
    assert words in found.stderr
