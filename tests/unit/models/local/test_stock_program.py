"""A stock server instead of the built-in one: taken where it is named; a script that is healthy stands for it."""

import os
import sys
from functools import partial
from pathlib import Path

import anyio
import pytest

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.local.catalogue import CATALOGUE
from stockade.models.local.embedded import EmbeddedModel
from stockade.models.local.fetch import fetch
from stockade.models.local.launch_spec import stock_server
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


def stock(folder: Path) -> ModelSettings:
    """A stock server that answers each question with nothing."""
    path = folder / "llama-server"
    path.write_text(STOCK % (sys.executable, {}))
    path.chmod(0o755)
    return ModelSettings(llama_server=str(path), ctx_size=512)


async def test_the_one_that_is_named_serves(smollm2: Path, tmp_path: Path) -> None:
    """It is started, found healthy, connected to, and ended."""
    async with EmbeddedModel(smollm2, "m", settings=stock(tmp_path), trusted=True) as model:
        assert str(model.server.facts["build"]).startswith(str(tmp_path / "llama-server"))
    assert sockets(runtime_folder()) == []


async def test_one_that_ends_is_told(smollm2: Path, tmp_path: Path) -> None:
    settings = stock(tmp_path)
    (tmp_path / "llama-server").write_text("#!/bin/sh\necho E bad luck >&2; exit 3\n")
    with pytest.raises(ModelUnavailable, match="bad luck"):
        async with EmbeddedModel(smollm2, "m", settings=settings, trusted=True):
            raise AssertionError("it is not there")
    assert sockets(runtime_folder()) == []


def test_which_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert stock_server(ModelSettings(), on_path=True) is None
    named = stock(tmp_path)
    assert stock_server(ModelSettings(), on_path=True) == stock_server(named) == tmp_path / "llama-server"
    assert stock_server(ModelSettings()) is None
    assert stock_server(ModelSettings(llama_server="off"), on_path=True) is None
    for wrong in (str(tmp_path), str(tmp_path / "missing")):
        with pytest.raises(UsageError, match="no such program"):
            stock_server(ModelSettings(llama_server=wrong))
