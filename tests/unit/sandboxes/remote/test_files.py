"""Files of a real sandbox over HTTP, and ways out of it that are none; output that nobody reads."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from stockade_sandbox import AsyncSandbox
from stockade_sandbox.backends.remote.http import HttpSandbox
from stockade_sandbox.errors import ActionFailed
from stockade_sandbox.policy import FolderRule, Policy
from tests.conformance.bench_remote import TOKEN, serving

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def served(base: Path) -> AsyncIterator[tuple[int, HttpSandbox, httpx2.AsyncClient, str]]:
    """The server's process, a sandbox, a client, and where the sandbox is."""
    (base / "layers").mkdir(mode=0o700)
    (base / "work").mkdir()
    policy = Policy(folders=(FolderRule(host=str(base / "work"), mode="rw"),))
    with serving(base) as (process, url):
        async with (
            HttpSandbox(policy, url, TOKEN) as box,
            httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client,
        ):
            name = (await client.get("/v1/sandboxes")).json()["sandboxes"][0]["id"]
            yield process.pid, box, client, f"/v1/sandboxes/{name}"


async def test_files_are_written_and_read_inside(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, box, client, place):
        data = bytes(range(256)) * 5000
        assert (await client.put(f"{place}/files/workspace/new/x%20y", content=data)).status_code == 204
        assert (tmp_path / "work/new/x y").read_bytes() == data
        assert (await client.get(f"{place}/files/workspace/new/x%20y")).content == data
        assert (await client.get(f"{place}/files/workspace/none")).status_code == 404
        assert (await client.get(f"{place}/files/workspace")).status_code == 422
        assert (await client.put(f"{place}/files/usr/x", content=b"x")).status_code == 422
        with suppress(httpx2.TransportError):  # it may be cut off while it is sent
            assert (await client.put(f"{place}/files/workspace/big", content=bytes(3 << 20))).status_code == 413
        assert (await client.get(f"{place}/files/workspace/big")).status_code == 404
        assert (await box.run("ls new")).stdout == b"x y\n"


async def test_files_are_read_and_listed_by_the_public_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "layers").mkdir(mode=0o700)
    with serving(tmp_path) as (_, url):
        (tmp_path / "token").chmod(0o600)
        monkeypatch.setenv("STOCKADE_TOKEN_FILE", str(tmp_path / "token"))
        async with AsyncSandbox(backend=url) as box:
            await box.write_file("/tmp/a", "x" * (3 << 20))
            assert await box.read_file("/tmp/a") == b"x" * (3 << 20)
            assert [one.name for one in await box.list_dir("/tmp")] == ["a"]
            with pytest.raises(OSError, match="larger than 5 bytes"):
                await box.read_file("/tmp/a", max_bytes=5)
            await box.exec(["truncate", "-s", "65M", "/tmp/a"])
            with pytest.raises(ActionFailed, match="at most 64 MiB"):
                await box.read_file("/tmp/a")


async def test_no_path_leads_to_a_file_of_the_serving_machine(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    async with served(tmp_path) as (_, box, client, place):
        await box.run(f"ln -s {secret} link; ln -s {tmp_path} out; mkfifo pipe")
        ups = ("..%2f" * 20, "%2e%2e/" * 20, "/" * 3, "workspace/../" * 2)
        for path in (*(up + str(secret)[1:] for up in ups), "workspace/link", "workspace/out/secret", "workspace/pipe"):
            answer = await client.get(f"{place}/files/{path}")
            assert b"of the host" not in answer.content, path
            await client.put(f"{place}/files/{path}", content=b"written")
        assert secret.read_text() == "of the host"
        assert sorted(os.listdir(tmp_path)) == ["layers", "secret", "token", "work"]


def resident(pid: int) -> int:
    """Of the server, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) << 10


async def test_a_slow_reader_stops_the_program_and_costs_the_server_little(tmp_path: Path) -> None:
    """All of it arrives, once; meanwhile others are served."""
    size = 100 << 20
    async with served(tmp_path) as (pid, box, _, _):
        before = resident(pid)
        async with box.program(["sh", "-c", f"head -c {size} /dev/zero; touch done"], errors=True) as program:
            had = len(await program.receive())
            for _ in range(20):
                assert (await box.run("ls")).stdout == b""
            assert resident(pid) - before < 16 << 20
            while had < size:
                had += len(await program.receive(1 << 20))
            assert (await program.wait(), had) == (0, size)
        assert (tmp_path / "work/done").exists()
