"""Which server is taken: the built-in one is real and has SmolLM2, the stock one is a script that claims a speed."""

import json
import os
import sys
from functools import partial
from pathlib import Path

import anyio
import pytest

from stockade.core.errors import UsageError
from stockade.models.local.catalogue import CATALOGUE
from stockade.models.local.embedded import EmbeddedModel
from stockade.models.local.engines import Speed, Verdict, choose_engine, find_binary
from stockade.models.local.fetch import fetch
from stockade.models.local.gguf import read_gguf
from stockade.models.local.server_lease import runtime_folder, sockets
from stockade.models.settings import ModelSettings

pytestmark = pytest.mark.anyio
MODELS = Path(os.environ.get("STOCKADE_TEST_MODELS") or Path.home() / ".cache/stockade-dev/models")
STOCK = """#!%s
import http.server, json, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({"status": "ok"})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(%r)

    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass

port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def smollm2() -> Path:
    return anyio.run(partial(fetch, CATALOGUE["smollm2"], folder=MODELS))


def stock(folder: Path, answer: object) -> ModelSettings:
    """A stock server that answers each question so."""
    path = folder / "llama-server"
    path.write_text(STOCK % (sys.executable, answer))
    path.chmod(0o755)
    return ModelSettings(llama_server=str(path))


def claims(speed: float) -> object:
    return {"timings": {"prompt_per_second": speed, "predicted_per_second": speed}}


async def chosen(path: Path, settings: ModelSettings) -> tuple[bool, list[str]]:
    heard: list[str] = []
    found = await choose_engine(path, read_gguf(path), settings, lambda text, *_: heard.append(text))
    assert sockets(runtime_folder()) == []
    return found is not None, heard


async def test_a_faster_one_is_taken_and_tried_once(smollm2: Path, tmp_path: Path) -> None:
    settings = stock(tmp_path, claims(1e6))
    taken, heard = await chosen(smollm2, settings)
    assert taken
    assert heard[0].startswith("trying whether ")
    assert "1000000 prompt and 1000000 answer tokens/s against " in heard[1]
    assert await chosen(smollm2, settings) == (True, [])
    # It is started, found healthy, connected to, and ended.
    settings = settings.model_copy(update={"ctx_size": 512})
    async with EmbeddedModel(smollm2, "m", settings=settings, trusted=True) as model:
        assert str(model.server.facts["build"]).startswith(str(tmp_path / "llama-server"))
    assert sockets(runtime_folder()) == []


async def test_a_slower_one_is_not(smollm2: Path, tmp_path: Path) -> None:
    settings = stock(tmp_path, claims(0.5))
    taken, heard = await chosen(smollm2, settings)
    assert not taken
    assert heard[1].startswith("not using ")
    assert await chosen(smollm2, settings) == (False, [])
    # Another file in its place is tried again.
    (tmp_path / "llama-server").write_text("#!/bin/sh\necho E bad luck >&2; exit 3\n")
    taken, heard = await chosen(smollm2, settings)
    assert not taken
    assert "it could not be used: E bad luck" in heard[1]


@pytest.mark.parametrize("answer", [{}, [], {"timings": {}}, {"timings": {"prompt_per_second": "x"}}, claims(0)])
async def test_one_that_answers_nonsense_is_not(smollm2: Path, tmp_path: Path, answer: object) -> None:
    taken, heard = await chosen(smollm2, stock(tmp_path, answer))
    assert not taken
    assert "it could not be used" in heard[1]


def test_which_binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_binary(ModelSettings()) is None
    stock(tmp_path, {})
    assert find_binary(ModelSettings()) == tmp_path / "llama-server"
    assert find_binary(ModelSettings(llama_server="off")) is None
    for wrong in (str(tmp_path), str(tmp_path / "missing")):
        with pytest.raises(UsageError, match="no such program"):
            find_binary(ModelSettings(llama_server=wrong))


def test_the_verdict() -> None:
    slow, fast = Speed(prompt=100, answer=10), Speed(prompt=400, answer=10)
    assert Verdict(ours=slow, theirs=fast).take_theirs
    assert not Verdict(ours=fast, theirs=slow).take_theirs
    assert not Verdict(ours=slow, theirs=slow).take_theirs
    assert not Verdict(ours=slow).take_theirs
    assert json.loads(Verdict(reason="x").model_dump_json())["reason"] == "x"
