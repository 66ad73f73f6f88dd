"""Folders that are sent as a tar: a run on one, archives that lead out, are none, or are bombs; whose they are."""

import io
import tarfile
from collections.abc import Iterator

import httpx2
import pytest

from tests.server.conftest import Stage, begin, until


def tar(members: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as out:
        for one, content in members:
            one.size = len(content)
            out.addfile(one, io.BytesIO(content))
    return data.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.mode = kind, link, 0o644
    return found


def test_a_folder_is_sent_in_pieces_worked_in_and_is_its_owners(stage: Stage, admin: httpx2.Client) -> None:
    whole = tar([(member("data.csv"), b"a\nb\n"), (member("big"), b"x" * 3_000_000)])

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(whole), 100_000):
            yield whole[at : at + 100_000]

    reply = admin.post("/v1/uploads", content=pieces())
    assert (reply.status_code, reply.json()["bytes"]) == (201, len(whole))
    upload = reply.json()["id"]
    run = begin(admin, folder=None, upload=upload)
    until(admin, run, "end")
    assert admin.get(f"/v1/runs/{run}/files/count.txt").text == "2\n"
    with stage.client(stage.token("not its owner")) as other:
        assert other.post("/v1/runs", json={"task": "t", "upload": upload}).status_code == 404
        assert other.delete(f"/v1/uploads/{upload}").status_code == 404
    assert admin.delete(f"/v1/uploads/{upload}").status_code == 204
    assert admin.post("/v1/runs", json={"task": "t", "upload": upload}).status_code == 404


LEADING_OUT = {
    "by dots": [(member("../out"), b"bad")],
    "absolute": [(member("/tmp/stockade-out"), b"bad")],
    "below a link": [(member("d", tarfile.SYMTYPE, ".."), b""), (member("d/out"), b"bad")],
    "over a link": [(member("f", tarfile.SYMTYPE, "../out"), b""), (member("f"), b"bad")],
    "a hard link": [(member("f", tarfile.LNKTYPE, "../../../../demo/data.csv"), b"")],
}


@pytest.mark.parametrize("way", LEADING_OUT)
def test_an_archive_writes_nothing_outside(way: str, stage: Stage, admin: httpx2.Client) -> None:
    root = stage.path / "DATA" / "stockade-uploads"
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    reply = admin.post("/v1/uploads", content=tar(LEADING_OUT[way]))
    assert reply.status_code in (201, 422)
    if reply.status_code == 422:
        assert "no tar" in reply.json()["detail"] or "archive" in reply.json()["detail"]
        assert reply.json()["hint"] == "tar -C FOLDER -c ."
    made = {path for path in root.rglob("*") if path.is_file()} - before.keys()
    assert all(path.relative_to(root).parts[2:] for path in made)
    assert all(path.read_bytes() == data for path, data in before.items())


@pytest.mark.parametrize("data", [b"", b"no archive" * 1000, b"\x1f\x8b" + b"0" * 2000, b"\0" * 100_000])
def test_what_is_no_archive_is_refused_or_empty(data: bytes, admin: httpx2.Client) -> None:
    reply = admin.post("/v1/uploads", content=data)
    assert reply.status_code in (201, 422), reply.text
    assert reply.status_code == 422 or data.strip(b"\0") == b""


def test_an_archive_that_unpacks_to_more_than_it_may_is_refused_and_gone(stage: Stage, admin: httpx2.Client) -> None:
    """A header that promises 3 GiB: it is refused by that, before a byte of it is written."""
    head = member("bomb")
    head.size = 3 << 30
    reply = admin.post("/v1/uploads", content=head.tobuf() + b"\0" * 10_000)
    assert reply.status_code == 422
    assert "larger than" in reply.json()["detail"]
    assert not list(stage.path.rglob("bomb"))
