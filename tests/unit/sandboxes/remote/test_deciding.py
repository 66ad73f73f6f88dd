"""Overlay folders of the serving machine: the diff over HTTP, and applying what was reviewed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from stockade_sandbox.backends.remote.folders import SNAPSHOT
from tests.conformance.bench_remote import TOKEN, serving

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(base: Path, *, sent: bool = False) -> AsyncIterator[tuple[httpx2.AsyncClient, str]]:
    """A client, and where its sandbox is, with an overlay folder in which `a` is written."""
    (base / "layers").mkdir(mode=0o700)
    (base / "work").mkdir()
    (base / "work/a").write_text("one\n")
    folder = {"host": str(base / "work"), "mode": "overlay", "inside": "/workspace"}
    with serving(base) as (_, url):
        async with httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client:
            body = {"policy": {"folders": [folder]}, "sent": [0] if sent else []}
            made = await client.post("/v1/sandboxes", json=body)
            assert made.status_code == (202 if sent else 201), made.text
            place = made.headers["location"]
            if sent:
                tar = bytes(1024)  # an empty one
                assert (await client.put(f"{place}/folders/1", content=tar)).status_code == 422
                assert (await client.put(f"{place}/folders/0", content=b"no tar")).status_code == 422
                assert (await client.put(f"{place}/folders/0", content=tar)).status_code == 204
                assert (await client.get(place)).status_code == 200
            script = "echo two >> a; mkdir -p sub; echo b > sub/b"
            program = {"argv": ["sh", "-c", script], "max_output_bytes": 100, "stdin": ""}
            started = await client.post(f"{place}/programs", json=program)
            state = (await client.get(started.headers["location"], params={"wait": 20})).json()
            assert state["result"]["exit_code"] == 0
            yield client, place


async def test_what_was_reviewed_is_applied_and_nothing_else(tmp_path: Path) -> None:
    async with opened(tmp_path) as (client, place):
        diff = await client.get(f"{place}/diff")
        assert (diff.status_code, "+two" in diff.text, "b/sub/b" in diff.text) == (200, True, True)
        assert (tmp_path / "work/a").read_text() == "one\n"
        assert (await client.put(f"{place}/files/workspace/late", content=b"x")).status_code == 204
        late = await client.post(f"{place}/apply", json={}, headers={"If-Match": diff.headers["etag"]})
        assert (late.status_code, (tmp_path / "work/a").read_text()) == (412, "one\n")
        now = (await client.get(f"{place}/diff")).headers["etag"]
        wanted = {"paths": ["a", "sub", "sub/b"]}
        done = await client.post(f"{place}/apply", json=wanted, headers={"If-Match": now})
        assert (done.status_code, sorted(done.json()["paths"])) == (200, ["a", "sub", "sub/b"])
        assert (tmp_path / "work/a").read_text() == "one\ntwo\n"
        assert not (tmp_path / "work/late").exists()
        assert (await client.get(f"{place}/diff")).status_code == 404


async def test_a_file_that_changed_there_meanwhile_is_a_conflict(tmp_path: Path) -> None:
    async with opened(tmp_path) as (client, place):
        (tmp_path / "work/a").write_text("other\n")
        refused = await client.post(f"{place}/apply", json={})
        assert (refused.status_code, "'a'" in refused.json()["detail"]) == (409, True)
        assert not (tmp_path / "work/sub").exists()
        assert (await client.post(f"{place}/apply", json={"force": True})).status_code == 200
        assert (tmp_path / "work/a").read_text() == "one\ntwo\n"


async def test_a_folder_that_was_sent_is_applied_where_it_came_from(tmp_path: Path) -> None:
    async with opened(tmp_path, sent=True) as (client, place):
        assert "+two" in (await client.get(f"{place}/diff")).text
        assert (await client.post(f"{place}/apply", json={})).status_code == 422
        changes = await client.get(f"{place}/folders/0/changes")
        assert (changes.status_code, changes.content[257:262]) == (200, b"ustar")
        since = changes.headers[SNAPSHOT]
        assert (await client.get(f"{place}/folders/0/changes", params={"since": since})).status_code == 204
        bad = await client.get(f"{place}/folders/0/changes", params={"since": "../../etc"})
        assert bad.status_code == 422
        assert (await client.get(f"{place}/folders/1/changes")).status_code == 404
