"""Servers that are started from a path, and ended with their last user."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.local import launch_spec
from stockade.models.local.embedded import EmbeddedModel
from stockade.models.local.server import served
from stockade.models.openai import OpenAIModel
from stockade.models.providers import parse_name
from stockade.models.settings import ModelSettings
from stockade.runtime.models import open_model
from stockade.testing.conformance.model import question

from .test_gguf import gguf

pytestmark = pytest.mark.anyio

SERVER = """
import http.server, json, os, sys
argv = sys.argv[1:]
port = int(argv[argv.index("--port") + 1])
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def tell(self, found):
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.tell({"/props": {"default_generation_settings": {"n_ctx": 4096}}}.get(self.path, {"status": "ok"}))
    def do_POST(self):
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        said = json.dumps({"argv": argv, "key": self.headers["Authorization"], "ours": os.environ["LLAMA_API_KEY"]})
        self.tell({"choices": [{"message": {"content": said}, "finish_reason": "stop"}]})
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
Program = Callable[[str], Path]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A shell script, which is what a llamafile is at its beginning."""

    def make(script: str) -> Path:
        path = tmp_path / "model.llamafile"
        path.write_text(script)
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def serving(program: Program, tmp_path: Path) -> Path:
    (tmp_path / "server.py").write_text(SERVER)
    return program(f"""exec {sys.executable} {tmp_path}/server.py "$@"\n""")


async def gone(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with anyio.fail_after(10):
            await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)


async def test_a_llamafile_is_started_asked_and_ended(serving: Path) -> None:
    model, name, _ = await open_model(f"llamafile/{serving}", ModelSettings(threads=1, more={"mlock": True}))
    assert name == f"llamafile/{serving}"
    async with model:
        assert (model.info.provider, model.info.context_window) == ("llamafile", 4096)
        assert isinstance(model, EmbeddedModel)
        pid = model.server.pid
        assert pid is not None
        said = (await model.ask(question())).content
    for part in ('"--server"', '"--threads", "1"', '"--host", "127.0.0.1"', '"--mlock"'):
        assert part in said
    for part in ("--model", "--alias"):
        assert part not in said
    # The key is no argument, and everybody else's is refused by a real server.
    key = said.split('"Bearer ')[1].split('"')[0]
    assert len(key) > 20
    assert f'"ours": "{key}"' in said
    assert said.count(key) == 2
    await gone(pid)


@pytest.mark.parametrize(
    "script", ["echo 'error: no such model' >&2; exit 3", "exit 0", "kill -9 $$", "echo begun >&2; kill -ILL $$"]
)
async def test_a_program_that_does_not_serve_is_told_in_one_line(program: Program, script: str) -> None:
    path = program(script)
    with pytest.raises(ModelUnavailable) as caught:
        async with EmbeddedModel(path, "m", "llamafile", trusted=True, program=path):
            pass
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    for told, said in (("such", "error: no such model"), ("ILL", "SIGILL (it was built for another processor): begun")):
        assert told not in script or said in str(caught.value)


async def test_a_program_that_is_never_ready_is_given_up(program: Program) -> None:
    path = program("sleep 1000")
    settings = ModelSettings(load_timeout_s=0.3)
    with pytest.raises(ModelUnavailable, match=r"was not loaded within 0\.3 s"):
        async with EmbeddedModel(path, "m", "llamafile", settings, trusted=True, program=path):
            pass


async def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        await open_model(f"llamafile/{tmp_path}/none.llamafile")
    with pytest.raises(ModelUnavailable, match=r"has a model .* and there is no such file to start one with"):
        await open_model(f"llama-server/{tmp_path}/none.gguf")


async def test_llama_server_has_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no llama-server on PATH"):
        await open_model(f"llama-server/{tmp_path}/m.gguf")


@pytest.fixture
def stock(tmp_path: Path, serving: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `llama-server` on PATH, and a model for it, made for 2048 tokens."""
    (tmp_path / "m.gguf").write_bytes(gguf())
    program = tmp_path / "bin" / "llama-server"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n. {serving}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.mark.usefixtures("stock")
async def test_llama_server_is_told_which_model(tmp_path: Path) -> None:
    model, _, _ = await open_model(f"llama-server/{tmp_path}/m.gguf", ModelSettings(ctx_size=1024, slots=1))
    async with model:
        said = (await model.ask(question())).content
    assert f'"--model", "{tmp_path}/m.gguf", "--alias", "m", "--ctx-size", "1024"' in said


@pytest.mark.usefixtures("stock")
async def test_the_window_of_llama_server_is_that_of_its_model(tmp_path: Path) -> None:
    model, _, _ = await open_model(f"llama-server/{tmp_path}/m.gguf", ModelSettings(slots=1))
    async with model:
        assert '"--ctx-size", "2048"' in (await model.ask(question())).content
        assert model.info.context_window == 2048
    model, _, _ = await open_model(f"llama-server/{tmp_path}/m.gguf", ModelSettings(ctx_size=4096))
    with pytest.raises(UsageError, match="more than the 2048"):
        async with model:
            pass


@pytest.mark.usefixtures("stock")
async def test_memory_is_checked_before_llama_server_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_spec, "available_bytes", lambda: 1000)
    model, _, _ = await open_model(f"llama-server/{tmp_path}/m.gguf")
    with pytest.raises(ModelUnavailable, match=r"m\.gguf with a window of 2048 tokens needs about"):
        async with model:
            pass


@pytest.mark.usefixtures("stock")
@pytest.mark.parametrize("provider", ["llama-server", "llamafile"])
async def test_a_server_that_dies_is_started_again(tmp_path: Path, provider: str) -> None:
    said: list[str] = []
    file = {"llama-server": "m.gguf", "llamafile": "model.llamafile"}[provider]
    model, _, _ = await open_model(
        f"{provider}/{tmp_path}/{file}", ModelSettings(slots=1), lambda text, *_: said.append(text)
    )
    async with model:
        assert isinstance(model, EmbeddedModel)
        first = model.server.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        assert "--port" in (await model.ask(question())).content
        assert model.server.pid not in (None, first)
    assert [text for text in said if text.endswith("; starting it again")]


def test_a_name_is_a_server_that_runs_already() -> None:
    assert not parse_name("llama-server/model.gguf").is_path


async def test_a_llamafile_is_served_to_other_programs(serving: Path) -> None:
    """At the port and with the key that were asked for; a run of the same file shares it; gone at the end."""
    path, port = serving, launch_spec.free_port()
    async with served(f"llamafile/{path}", ModelSettings(), port=port, api_key="a-key") as server:
        assert (server.base_url, server.api_key) == (f"http://127.0.0.1:{port}/v1", "a-key")
        async with OpenAIModel(server.base_url, "any", "a-key") as asked:
            told = json.loads((await asked.ask(question())).content)
        assert told["argv"][0] == "--server"
        assert (told["key"], told["ours"]) == ("Bearer a-key", "a-key")
        async with EmbeddedModel(path, "m", "llamafile", trusted=True, program=path) as run:
            assert run.server.pid == server.pid
        pid = server.pid or 0
    await gone(pid)


@pytest.mark.usefixtures("stock")
async def test_a_stock_llama_server_is_served_to_other_programs(tmp_path: Path) -> None:
    async with served(f"llama-server/{tmp_path}/m.gguf", ModelSettings(ctx_size=1024), api_key="k") as server:
        async with OpenAIModel(server.base_url, "any", "k") as asked:
            told = json.loads((await asked.ask(question())).content)
    assert told["argv"][told["argv"].index("--model") + 1] == str(tmp_path / "m.gguf")
    assert told["argv"][told["argv"].index("--alias") + 1] == "m"


async def test_what_cannot_be_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf())
    monkeypatch.setenv("PATH", str(tmp_path))
    for spec, words in (
        ("ollama/x", "is not a model that is served from here"),
        ("llamafile/x", "is not a model that is served from here"),
        (f"llamafile/{tmp_path}/none", "there is no file"),
        (f"llama-server/{tmp_path}/m.gguf", "no llama-server on PATH"),
    ):
        with pytest.raises(UsageError, match=words):
            async with served(spec, ModelSettings()):
                pass
