"""Serving to other programs, and removing: with the real SmolLM2."""

import os
import shutil
import signal
import socket
from functools import partial
from pathlib import Path

import anyio
import pytest

from stockade.core.errors import UsageError
from stockade.models.local.catalogue import CATALOGUE
from stockade.models.local.embedded import EmbeddedModel
from stockade.models.local.fetch import fetch
from stockade.models.local.folder import remove
from stockade.models.local.launch_spec import free_port
from stockade.models.local.server import served, until_it_dies
from stockade.models.local.server_lease import running, runtime_folder, sockets
from stockade.models.openai import OpenAIModel
from stockade.models.settings import ModelSettings
from stockade.testing.conformance.model import question

pytestmark = pytest.mark.anyio
MODELS = Path(os.environ.get("STOCKADE_TEST_MODELS") or Path.home() / ".cache/stockade-dev/models")
SMALL = ModelSettings(ctx_size=512)


@pytest.fixture(scope="module")
def smollm2() -> Path:
    return anyio.run(partial(fetch, CATALOGUE["smollm2"], folder=MODELS))


async def test_programs_and_runs_share_it_and_it_comes_back_at_its_address(smollm2: Path) -> None:
    port = free_port()
    async with served(f"gguf/{smollm2}", SMALL, port=port, api_key="a-key") as server:
        assert (server.base_url, server.api_key) == (f"http://127.0.0.1:{port}/v1", "a-key")
        async with OpenAIModel(server.base_url, "any", "a-key") as program:
            assert (await program.ask(question(max_tokens=4))).finish_reason
        async with EmbeddedModel(smollm2, "m", settings=SMALL, trusted=True) as run:
            assert run.server.pid == server.pid
            os.kill(server.pid or 0, signal.SIGKILL)
            await until_it_dies(server)
            assert (await run.ask(question(max_tokens=4))).finish_reason
            await server.restart()
            assert server.pid == run.server.pid
        assert (server.base_url, server.api_key) == (f"http://127.0.0.1:{port}/v1", "a-key")
    assert sockets(runtime_folder()) == []


async def test_a_server_that_nobody_uses_makes_room(smollm2: Path) -> None:
    async with EmbeddedModel(
        smollm2, "m", settings=SMALL.model_copy(update={"keep_warm_s": 3600}), trusted=True
    ) as model:
        before = model.server.pid
        with pytest.raises(UsageError, match=r"is being served at .* already, and in use"):
            async with served(f"gguf/{smollm2}", SMALL):
                pass
    async with served(f"gguf/{smollm2}", SMALL) as server:
        assert server.pid != before
        assert len(running()) == 1
        assert len(server.api_key) > 20


async def test_what_cannot_be_served(smollm2: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            async with served(f"gguf/{smollm2}", SMALL, port=port):
                pass
    for host in ("no.such.host.invalid", "999.1.1.1", "8.8.8.8"):
        with pytest.raises(UsageError, match="cannot listen on"):
            async with served(f"gguf/{smollm2}", SMALL, host=host):
                pass
    for key in ("", "a b", "\n", "\u00e4"):
        with pytest.raises(UsageError, match="a key is printable"):
            async with served(f"gguf/{smollm2}", SMALL, api_key=key):
                pass
    with pytest.raises(UsageError, match="is not a model that is served from here"):
        async with served("ollama/x", SMALL):
            pass


async def test_a_file_in_use_is_not_removed(smollm2: Path, tmp_path: Path) -> None:
    path = tmp_path / "models" / "me" / "m.gguf"
    path.parent.mkdir(parents=True)
    shutil.copy(smollm2, path)
    folder = tmp_path / "models"
    async with EmbeddedModel(path, "m", settings=SMALL.model_copy(update={"keep_warm_s": 3600}), trusted=True):
        with pytest.raises(UsageError, match=r"m.gguf is in use \(wait"):
            remove(f"gguf/{path}", folder)
    assert remove(f"gguf/{path}", folder) == path
    assert running() == []
    assert list(folder.iterdir()) == []
    with pytest.raises(UsageError, match="there is no file"):
        remove("smollm2", folder)
    (tmp_path / "x.gguf").touch()
    for outside in (f"gguf/{tmp_path}/x.gguf", f"gguf/{folder}/../x.gguf", "ollama/x"):
        with pytest.raises(UsageError, match="is not in the model folder"):
            remove(outside, folder)
    assert (tmp_path / "x.gguf").exists()
