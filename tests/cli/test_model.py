"""`stockade model`: pull, list, info, serve and rm as a person types them."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.cli.conftest import Stage
from tests.unit.models.local.fake_hub import FakeHub
from tests.unit.models.local.test_gguf import gguf

MODELS = os.environ.get("STOCKADE_TEST_MODELS") or str(Path.home() / ".cache/stockade-dev/models")


def test_pull_list_and_remove(stage: Stage) -> None:
    llamafile = stage.tmp_path / "tiny.llamafile"
    with zipfile.ZipFile(llamafile, "w") as archive:
        archive.writestr("tiny.gguf", gguf())
    pulled = stage.call("model", "pull", str(llamafile))
    assert pulled.status == 0, pulled.err
    assert "taking the model out of tiny.llamafile" in pulled.err
    name = pulled.out.strip()
    assert name.startswith("gguf/")
    rows = {row["name"]: row for row in stage.call("model", "list", "--json").events}
    assert rows[name]["here"] is True
    assert rows[name]["running"] is None
    assert rows[name]["window"] == 2048
    assert {"licence", "size_bytes", "quantisation"} <= set(rows[name])
    assert [row["name"] for row in rows.values() if row["pull"]]
    assert "stockade model pull hf:" in stage.call("model", "list").out
    assert stage.call("model", "rm", name).out == f"removed {name.removeprefix('gguf/')}\n"
    assert name not in {row["name"] for row in stage.call("model", "list", "--json").events}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("pull", "nothing"), 2, "there is no model 'nothing'"),
        (("pull", "hf:x"), 2, "not a repository of the hub"),
        (("pull", "smollm2", "--sha256", "zz"), 2, "not a sha256"),
        (("pull", "http://127.0.0.1:1/x.gguf"), 5, "was not reached"),
        (("rm", "smollm2"), 2, "there is no file"),
        (("rm", "gguf//etc/passwd"), 2, "is not in the model folder"),
        (("serve", "ollama/x"), 2, "is not a model that is served from here"),
        (("serve", "gguf//no/where.gguf"), 5, "cannot read the model file"),
        (("serve", "--port", "x"), 2, "'x' is not a valid integer"),
    ],
)
def test_mistakes_are_one_line(stage: Stage, arguments: tuple[str, ...], status: int, words: str) -> None:
    ended = stage.call("model", *arguments)
    assert ended.status == status
    assert words in ended.err
    assert ended.out == ""
    assert "Traceback" not in ended.err
    assert len(ended.err.splitlines()) <= 2


def test_serve_until_ctrl_c(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOCKADE_MODELS", MODELS)
    process = stage.start("model", "serve", "embedded/smollm2", "--port", "0", "--ctx-size", "512", "--json")
    assert process.stdout is not None
    facts = json.loads(process.stdout.readline())
    request = urllib.request.Request(f"{facts['base_url']}/models")
    request.add_header("Authorization", f"Bearer {facts['api_key']}")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["data"][0]["id"] == "smollm2"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{facts['base_url']}/models", timeout=60)
    row = next(row for row in stage.call("model", "list", "--json").events if row["name"] == "embedded/smollm2")
    assert row["running"]["pid"] == facts["pid"]
    assert "api_key" not in row["running"]
    assert "running (1)" in stage.call("model", "list").out
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert not Path(f"/proc/{facts['pid']}").exists()


@pytest.mark.anyio
async def test_a_pull_that_was_killed_goes_on_where_it_was(stage: Stage) -> None:
    """Of two at once the second waits; when the first is killed it fetches what is missing, not what is here."""
    data = gguf(weights=3_000_000)
    async with FakeHub(data, holds=(1, 1_000_000)) as hub:  # the first question is for the size
        first = stage.start("model", "pull", f"{hub.url}/tiny.gguf")
        await anyio.to_thread.run_sync(until, lambda: part_bytes(stage) > 900_000)
        second = stage.start("model", "pull", f"{hub.url}/tiny.gguf")
        await anyio.to_thread.run_sync(until, lambda: len(hub.asked) == 3)
        first.kill()
        kept = part_bytes(stage)
        out, _ = await anyio.to_thread.run_sync(second.communicate)
    assert [start for _, start in hub.asked] == [0, 0, 0, kept]
    path = anyio.Path(out.decode().strip().removeprefix("gguf/"))
    assert await path.read_bytes() == data
    assert await anyio.to_thread.run_sync(first.wait) == -signal.SIGKILL


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def part_bytes(stage: Stage) -> int:
    return sum(part.stat().st_size for part in stage.home.rglob("tiny.gguf.part"))


@pytest.mark.anyio
async def test_pull_from_the_hub(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the token that `hf auth login` keeps; nothing is written where the library keeps its own."""
    data, commit = gguf(weights=50_000), "0123456789abcdef0123456789abcdef01234567"
    digest = hashlib.sha256(data).hexdigest()
    siblings = [{"rfilename": "tiny.gguf", "lfs": {"sha256": digest, "size": len(data), "pointerSize": 9}}]
    page = {"id": "me/tiny", "sha": commit, "siblings": siblings}
    home = stage.tmp_path / "hf"
    (home / "hub").mkdir(parents=True)
    (home / "token").write_text("hf_stored")
    for name, value in (("HF_HOME", str(home)), ("AI_AGENT", "nosy"), ("HF_HUB_ENABLE_HF_TRANSFER", "1")):
        monkeypatch.setenv(name, value)
    headers = f'ETag: "{digest}"\r\nX-Repo-Commit: {commit}\r\n'
    async with FakeHub(data, pages={"/api/models/me/tiny/revision/main?blobs=true": page}, headers=headers) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        pulled = await anyio.to_thread.run_sync(stage.call, "model", "pull", "hf:me/tiny")
        assert pulled.status == 0, pulled.err
        assert [head.split()[1] for head in hub.heads] == [
            "/api/models/me/tiny/revision/main?blobs=true",
            f"/me/tiny/resolve/{commit}/tiny.gguf",
        ]
        assert all("authorization: bearer hf_stored" in head.lower() for head in hub.heads)
        assert "nosy" not in "".join(hub.heads)
        assert sorted(path.name for path in home.rglob("*")) == ["hub", "token"]
        assert [line.split()[0] for line in pulled.err.splitlines()] == ["fetching", "checking"]


@pytest.mark.anyio
async def test_a_hub_that_says_nothing_does_not_hold_ctrl_c(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeHub(b"", silent=True) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        process = stage.start("model", "pull", "hf:me/tiny")
        with anyio.fail_after(60):
            await hub.was_asked.wait()
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        await anyio.to_thread.run_sync(process.wait)
    assert time.monotonic() - begun < 15
    assert process.returncode == 130


def test_the_hubs_library_is_not_imported_without_need(stage: Stage) -> None:
    code = "import sys, stockade.cli, stockade.models.local.fetch; print('huggingface_hub' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=stage.environment(), check=True)
    assert done.stdout == b"False\n"
