"""`stockade serve` under load: runs at once on a scripted model, readers of their events, and other reads beside them.

Each reader must see each event of its run once and in order, or this ends with an error. The reads whose latency is
measured come from a process of their own, which shares the machine. `python -m bench.serve --runs 200 --readers 100`.
With commands of 0.2 s the machine is busy with starting runs all the time; with 4 s all are under way at once.
"""

import argparse
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import anyio
import httpx2

from bench.processes import peak_rss
from stockade.server.tokens import SCOPES, Tokens
from stockade.testing import say

TURNS, READS_S = 5, 50
PATIENCE_S = 600


class Server:
    """A real one with a state of its own; `started_s`: until it answered."""

    def __init__(self, folder: Path, command_s: float) -> None:
        environment = os.environ | {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CONFIG", "CACHE")}
        answers = [say("shell", command=f"echo {number}; sleep {command_s}") for number in range(TURNS)]
        script = "".join(f"{json.dumps({'content': one})}\n" for one in [*answers, say("finish", answer="done")])
        (folder / "script").write_text(script)
        self.token = Tokens(folder / "STATE/stockade/serve/tokens.json").new("bench", SCOPES, 10_000, None)
        (folder / "demo").mkdir()
        argv = ["-m", "stockade.cli", "serve", "--port", "0", "--folder", str(folder / "demo"),
                "--model", f"scripted/{folder / 'script'}"]  # fmt: skip
        begun = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, *argv], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().decode().strip()
        httpx2.get(f"{self.url}/healthz").raise_for_status()
        self.started_s = time.monotonic() - begun

    def http(self) -> httpx2.AsyncClient:
        return http(self.url, self.token)

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)


def http(url: str, token: str) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=200)
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S, limits=limits)


async def read(client: httpx2.AsyncClient, run: str) -> int:
    """All events of a run to its end: how many. AssertionError for one that is missing, twice, or out of order."""
    count = 0
    async with client.stream("GET", f"/v1/runs/{run}/events") as reply:
        async for line in reply.aiter_lines():
            if line.startswith("id:"):
                number = int(line.removeprefix("id:"))
                assert number == count, f"run {run}: event {number} where {count} was due"
                count += 1
            elif line == "event: end":
                return count
    raise AssertionError(f"run {run}: the events ended without an end")


async def begin(client: httpx2.AsyncClient) -> str:
    return str((await client.post("/v1/runs", json={"task": "count"})).raise_for_status().json()["id"])


async def read_beside(url: str, token: str, over: Connection) -> list[float]:
    """Half of the reads are of the newest runs, half of the newest one; seconds of each, until `over` is told."""
    latencies, newest = list[float](), ""
    async with http(url, token) as client, anyio.create_task_group() as group:

        async def once(path: str) -> None:
            nonlocal newest
            at = time.monotonic()
            reply = await client.get(path)
            latencies.append(time.monotonic() - at)
            if path.endswith("20") and reply.raise_for_status().json()["runs"]:
                newest = reply.json()["runs"][0]["id"]

        number = 0
        while not over.poll():
            due = time.monotonic() + 1 / READS_S
            number += 1
            group.start_soon(once, f"/v1/runs/{newest}" if newest and number % 2 else "/v1/runs?limit=20")
            await anyio.sleep(max(0.0, due - time.monotonic()))
    return latencies


def beside(url: str, token: str, over: Connection) -> None:
    over.send(anyio.run(read_beside, url, token, over))


async def load(server: Server, runs: int, readers: int) -> dict[str, Any]:
    """What was measured: seconds, milliseconds, bytes."""
    counts, begun = list[int](), list[str]()
    started, before = time.monotonic(), peak_rss(server.process.pid)
    over, theirs = multiprocessing.Pipe()
    reads = multiprocessing.get_context("spawn").Process(target=beside, args=(server.url, server.token, theirs))
    reads.start()
    async with server.http() as client:

        async def one(number: int) -> None:
            run = await begin(client)
            begun.append(run)
            if number < readers:
                counts.append(await read(client, run))

        async with anyio.create_task_group() as all_runs:
            for number in range(runs):
                all_runs.start_soon(one, number)
        over.send("over")
        order = sorted(await anyio.to_thread.run_sync(over.recv))
        reads.join()
        for run in begun:
            await read(client, run)
    return {
        "runs": runs, "readers": readers, "events": sum(counts), "took_s": round(time.monotonic() - started, 1),
        "start_s": round(server.started_s, 2), "reads": len(order),
        "read_p50_ms": round(1000 * statistics.median(order), 1),
        "read_p99_ms": round(1000 * order[int(0.99 * (len(order) - 1))], 1),
        "server_mib_a_run": round((peak_rss(server.process.pid) - before) / runs / 2**20, 2),
    }  # fmt: skip


def main() -> None:
    """Prints the figures, a line each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--command-s", type=float, default=4.0, help="of each command")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-serve-") as folder:
        server = Server(Path(folder), asked.command_s)
        try:
            found = anyio.run(load, server, asked.runs, asked.readers)
        finally:
            server.end()
    for name, value in found.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
