"""`stockade model`: pull, list, info, serve and rm as a person types them."""

import json
import os
import signal
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tests.cli.conftest import Stage
from tests.unit.models.test_gguf import gguf

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
        (("serve", "ollama/x"), 2, "is not a model of the embedded server"),
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
