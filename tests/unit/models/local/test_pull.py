import hashlib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.local.fetch import pull
from stockade.models.local.folder import list_models, provenance
from stockade.models.local.hub import HubName

from .fake_hub import FakeHub
from .test_gguf import gguf

pytestmark = pytest.mark.anyio
DATA = gguf(weights=3_000_000)
SHA256 = hashlib.sha256(DATA).hexdigest()
COMMIT = "0123456789abcdef0123456789abcdef01234567"
API = "/api/models/me/Tiny-GGUF/revision/main?blobs=true"


def listed(*files: str, sha256: str = SHA256, size: int = len(DATA)) -> dict[str, Any]:
    """What the hub says of a repository with these files."""
    lfs = {"sha256": sha256, "size": size, "pointerSize": 134}
    siblings: list[dict[str, Any]] = [{"rfilename": file, "size": size, "lfs": lfs} for file in files]
    siblings.append({"rfilename": "README.md", "size": 3})
    card = {"license": "apache-2.0"}
    return {API: {"id": "me/Tiny-GGUF", "sha": COMMIT, "siblings": siblings, "cardData": card}}


def left_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


class Hub(FakeHub):
    """A fake of the hub, named by HF_ENDPOINT."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pages: dict[str, Any], **how: Any) -> None:
        super().__init__(how.pop("data", DATA), pages=pages, **how)
        self._monkeypatch = monkeypatch

    async def __aenter__(self) -> "Hub":
        await super().__aenter__()
        self._monkeypatch.setenv("HF_ENDPOINT", self.url)
        return self


async def test_from_the_hub(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    pages = listed("tiny-q8_0.gguf", "tiny-Q4_K_M.gguf", "mmproj-q4_k_m.gguf", "big-q4_k_m-00001-of-00002.gguf")
    async with Hub(monkeypatch, pages) as hub:
        name, path = await pull("hf:me/Tiny-GGUF", lambda text, *_: heard.append(text), models)
        assert hub.asked == [("/me/Tiny-GGUF/resolve/" + COMMIT + "/tiny-Q4_K_M.gguf", 0)]
        again = await pull("hf:me/Tiny-GGUF/resolve/main/tiny-Q4_K_M.gguf", folder=models)
        assert len(hub.asked) == 1
    assert path == models / "me/Tiny-GGUF/tiny-Q4_K_M.gguf"
    assert (name, path) == (f"gguf/{path}", path) == again
    assert path.read_bytes() == DATA
    assert provenance(path) == (SHA256, f"hf:me/Tiny-GGUF@{COMMIT}/tiny-Q4_K_M.gguf", "apache-2.0")
    row = next(row for row in list_models(models) if row.name == name)
    assert (row.verified, row.sha256, row.source) == (True, SHA256, f"hf:me/Tiny-GGUF@{COMMIT}/tiny-Q4_K_M.gguf")
    assert "fetching tiny-Q4_K_M (3 MB, apache-2.0) from 127.0.0.1/me/Tiny-GGUF" in heard


async def test_a_cut_is_continued(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Hub(monkeypatch, listed("a.gguf"), cuts=(1_000_000, 500_000)) as hub:
        _, path = await pull("hf:me/Tiny-GGUF/a.gguf", folder=models)
        assert [start for _, start in hub.asked] == [0, 1_000_000, 1_500_000]
    assert path.read_bytes() == DATA


async def test_other_bytes_of_the_same_size_are_not_taken(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Hub(monkeypatch, listed("a.gguf"), data=DATA[:-1] + b"x"):
        with pytest.raises(ModelUnavailable, match=r"is not a: sha256 .* it was deleted"):
            await pull("hf:me/Tiny-GGUF", folder=models)
    assert not [file for file in left_in(models) if not file.endswith(".lock")]


async def test_the_token_is_for_the_hub(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    async with Hub(monkeypatch, listed("a.gguf")) as hub:
        await pull("hf:me/Tiny-GGUF", folder=models)
        assert hub.heads
        assert all("authorization: bearer hf_secret" in head.lower() for head in hub.heads)
        await pull(f"{hub.url}/elsewhere/b.gguf", folder=models)
        assert "hf_secret" not in hub.heads[-1]


@pytest.mark.parametrize(
    ("reference", "files", "words"),
    [
        ("hf:me/Tiny-GGUF", ("a.gguf", "b.gguf"), "has 2 models"),
        ("hf:me/Tiny-GGUF", ("a.safetensors",), "no GGUF file that is whole"),
        ("hf:me/Tiny-GGUF/c.gguf", ("a.gguf",), "has no file 'c.gguf'"),
        ("hf:me/Tiny-GGUF/x-00001-of-00002.gguf", ("x-00001-of-00002.gguf",), "one piece of several"),
        ("hf:me/Tiny-GGUF/..gguf", ("..gguf",), "not usable as a file name"),
        ("hf:me", (), "not a repository"),
    ],
)
async def test_what_cannot_be_chosen(
    models: Path, monkeypatch: pytest.MonkeyPatch, reference: str, files: tuple[str, ...], words: str
) -> None:
    async with Hub(monkeypatch, listed(*files)):
        with pytest.raises((UsageError, ModelUnavailable), match=words):
            await pull(reference, folder=models)
    assert left_in(models) == []


def one(file: Any = "a.gguf", commit: str = COMMIT, **lfs: Any) -> dict[str, Any]:
    """A repository with one file; without `lfs` one that is not in large file storage."""
    stored = {"sha256": SHA256, "size": 3, "pointerSize": 134, **lfs} if lfs else None
    return {"id": "me/Tiny-GGUF", "sha": commit, "siblings": [{"rfilename": file, "size": 3, "lfs": stored}]}


@pytest.mark.parametrize(
    "page",
    [[], {}, {"id": "x", "siblings": 3}, {"id": "x", "siblings": [3]}, one(file=7), one(),
     one(sha256="../.."), one(sha256=None), one(size="x"), one(commit="../..", size=3)],
)  # fmt: skip
async def test_a_hub_that_talks_nonsense(models: Path, monkeypatch: pytest.MonkeyPatch, page: Any) -> None:
    async with Hub(monkeypatch, {API: page}):
        with pytest.raises(ModelUnavailable, match=r"is not understood|no sha256"):
            await pull("hf:me/Tiny-GGUF", folder=models)


async def test_no_hub(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Hub(monkeypatch, {}, status=401):
        with pytest.raises(ModelUnavailable, match=r"answered 401 No \(for one with conditions.*HF_TOKEN"):
            await pull("hf:me/Tiny-GGUF", folder=models)
    with pytest.raises(ModelUnavailable, match="was not reached"):
        await pull("hf:me/Tiny-GGUF", folder=models)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelUnavailable, match="HF_HUB_OFFLINE is set"):
        await pull("hf:me/Tiny-GGUF", folder=models)


async def test_from_an_address(models: Path) -> None:
    async with FakeHub(DATA) as hub:
        _, path = await pull(f"{hub.url}/some/tiny.gguf?download=true", folder=models, sha256=SHA256.upper())
        with pytest.raises(ModelUnavailable, match="expected " + "0" * 64):
            await pull(f"{hub.url}/other.gguf", folder=models, sha256="0" * 64)
    assert path.name == "tiny.gguf"
    assert path.read_bytes() == DATA
    assert [file for file in left_in(models) if file.endswith(".gguf")] == [str(path.relative_to(models))]


async def test_what_is_no_model_is_not_kept(models: Path) -> None:
    async with FakeHub(b"<html>not here</html>" * 100) as hub:
        with pytest.raises(ModelUnavailable, match="not a usable model file"):
            await pull(f"{hub.url}/tiny.gguf", folder=models)
    assert not [file for file in left_in(models) if not file.endswith(".lock")]


def llamafile(path: Path, members: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> Path:
    """A program with an archive at its end."""
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    path.write_bytes(b"MZqFpD='\n#!/bin/sh\n" * 100 + path.read_bytes())
    return path


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
async def test_llamafiles(models: Path, tmp_path: Path, how: int) -> None:
    source = llamafile(tmp_path / "tiny.llamafile", {"llama.cpp/x.so": b"x", "tiny.gguf": DATA}, how)
    name, path = await pull(str(source), folder=models)
    assert name == f"gguf/{path}"
    assert path.read_bytes() == DATA
    assert provenance(path)[0] == SHA256
    assert [file for file in left_in(models) if "llamafile" in file and "lock" not in file] == []
    async with FakeHub(source.read_bytes()) as hub:
        _, fetched = await pull(f"{hub.url}/tiny.llamafile", folder=models)
    assert fetched.read_bytes() == DATA


async def test_llamafiles_that_are_none(models: Path, tmp_path: Path) -> None:
    empty = llamafile(tmp_path / "a.llamafile", {"readme": b"x"})
    with pytest.raises(ModelUnavailable, match="there is no GGUF file in"):
        await pull(str(empty), folder=models)
    damaged = llamafile(tmp_path / "b.llamafile", {"tiny.gguf": DATA})
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:100_000] + b"y" * 10 + whole[100_010:])
    with pytest.raises(ModelUnavailable, match=r"is damaged: Bad CRC-32"):
        await pull(str(damaged), folder=models)
    assert not [file for file in left_in(models) if not file.endswith(".lock")]


async def test_what_is_no_reference(models: Path) -> None:
    with pytest.raises(UsageError, match="there is no model 'qwen9000'") as caught:
        await pull("qwen9000", folder=models)
    assert (caught.value.hint or "").startswith("give a name of `stockade model list`, hf:")
    with pytest.raises(UsageError, match="not a sha256"):
        await pull("smollm2", folder=models, sha256="12")
    with pytest.raises(UsageError, match="smollm2 has the sha256"):
        await pull("embedded/smollm2", folder=models, sha256="0" * 64)


async def test_addresses_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/")
    wanted = HubName(owner="o", repo="r", revision="v1", file="d/f.gguf")
    for text in ("o/r@v1/d/f.gguf", "https://huggingface.co/o/r/resolve/v1/d/f.gguf?download=true",
                 "https://hf.co/o/r/blob/v1/d/f.gguf", "https://mirror.example/o/r/resolve/v1/d/f.gguf"):  # fmt: skip
        assert HubName.parse(text) == wanted
    assert HubName.parse("o/r") == HubName(owner="o", repo="r")
