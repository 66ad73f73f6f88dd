"""The examples that Microbots publishes run with Microbots itself and, the import changed, with ours, to one end."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.toolchain
SCRIPT = Path(__file__).parent / "suites" / "microbots_examples.py"
CASES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "writing": (["cat main.c", "echo fixed > main.c"], {"status": True, "result": "done", "error": None}),
    "mounts": (["cat /workdir/docs/guide.md > note"], {"status": True, "result": "done", "error": None}),
    "auditor": (["echo bad > main.c; cat main.c"], {"status": True, "result": "done", "error": None}),
    "log": (["cat /var/log/build.log"], {"status": True, "result": "done", "error": None}),
    "iterations": (["true"] * 9, {"status": False, "result": None, "error": "Max iterations 2 reached"}),
    "by_token": (["echo fixed > main.c"], {"status": True, "result": "done", "error": None}),
}
LEFT = {
    "writing": {"app/main.c": "fixed\n"}, "mounts": {"app/note": "read me\n"}, "by_token": {"app/main.c": "fixed\n"},
}  # fmt: skip
"""What is in the folder then; what is not named is as it was."""


class _Handler(BaseHTTPRequestHandler):
    commands: list[str]
    keys: set[str]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/responses") and body.get("tools"):  # ours: it speaks the other API as well
            self.send_error(404)
            return
        self.keys.add(self.headers.get("Authorization") or f"api-key {self.headers.get('api-key')}")
        command = self.commands.pop(0) if self.commands else ""
        theirs = self.path.partition("?")[0].endswith("/responses")
        place = f"cd /workdir/app; {command}" if command else ""
        words = json.dumps({"task_done": not command, "thoughts": "" if command else "done", "command": place})
        if theirs:
            part = {"type": "output_text", "text": words, "annotations": []}
            said = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
            self._send({
                "id": "r", "object": "response", "created_at": 1, "model": body["model"], "output": [said],
                "status": "completed", "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
            })  # fmt: skip
            return
        delta: dict[str, Any] = {"content": "done"}
        if command and body.get("tools"):
            call = {"name": "shell", "arguments": json.dumps({"command": place})}
            delta = {"tool_calls": [{"index": 0, "id": f"c{len(self.commands)}", "type": "function", "function": call}]}
        ends = "tool_calls" if "tool_calls" in delta else "stop"
        chunk = {"object": "chat.completion.chunk", "model": "m", "choices": [
            {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": ends}]}  # fmt: skip
        self._send(None, f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())

    def do_GET(self) -> None:
        self.send_error(404)

    def _send(self, what: Any, stream: bytes = b"") -> None:
        data = stream or json.dumps(what).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Not heard."""


@contextmanager
def model(commands: list[str]) -> Iterator[tuple[str, set[str]]]:
    kind = type("Handler", (_Handler,), {"commands": list(commands), "keys": set()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", kind.keys  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    fresh = tmp_path_factory.mktemp("microbots")
    subprocess.run([sys.executable, "-m", "venv", fresh], check=True)
    python = str(fresh / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "microbots==0.0.21"], check=True)
    return {"microbots": python, "stockade.microbots": sys.executable}


@pytest.mark.parametrize("example", CASES)
@pytest.mark.parametrize("package", ["microbots", "stockade.microbots"])
def test_an_example(package: str, example: str, pythons: dict[str, str], tmp_path: Path) -> None:
    before = {"app/main.c": "broken\n", "app/build.log": "error: main.c\n", "docs/guide.md": "read me\n"}
    for name, text in before.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    commands, wanted = CASES[example]
    with model(commands) as (url, keys):
        own = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("STATE", "CONFIG", "CACHE", "DATA")}
        azure = {"AZURE_OPENAI_ENDPOINT": url, "AZURE_OPENAI_API_VERSION": "2025-03-01-preview"}
        where = {"OPENAI_ENDPOINT": f"{url}/v1", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "a-key", **azure}
        done = subprocess.run([pythons[package], SCRIPT, package, example], env={**os.environ, **own, **where},
                              cwd=tmp_path, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == wanted
    names = {str(path.relative_to(tmp_path)) for top in ("app", "docs") for path in (tmp_path / top).rglob("*")}
    after = {name: (tmp_path / name).read_text() for name in names}
    assert after == {**before, **LEFT.get(example, {})}
    assert keys == {"Bearer a-token" if example == "by_token" else "Bearer a-key"}
