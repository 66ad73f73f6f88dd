"""What a task of many costs: `stockade batch run` beside mini-swe-agent and inspect_ai, on the same fake server.

    .venv/bin/python -m bench.fleet [--tasks N] [--turns N] [--at-once N] [--rounds N]
    .venv/bin/python -m bench.fleet --workers [--tasks N]

Each task is so many shell commands and an end, all answers come at once, and so many tasks are under way at a time.
Wall time and CPU are of the whole program with all that it started, but not of the server. Ours has each task in a
sealed sandbox of its own, with an overlay of a folder and every event on disk before its effect; the others seal
nothing here: mini-swe-agent has a local shell (its own runner wants Docker), inspect_ai its sandbox `local`. The best
of the rounds, which take turns.

`--workers`: ours alone, from one task at a time to eight, by one process and on Ray, with what Ray's workers use; a
batch of as many tasks as are under way at a time, which is what the start costs, is taken off.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.contenders import BENCH
from bench.cpu_group import counted
from bench.peers import PEERS, Peer, installed
from bench.server import answer
from bench.table import draw

INSPECT = Peer("inspect_ai 0.3.285", ("inspect-ai==0.3.285", "openai==3.57.0"), "peer_inspect.py")


USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


@dataclass(frozen=True)
class Cost:
    wall_s: float
    cpu_s: float
    peak_mib: float


@contextmanager
def served(turns: int) -> Iterator[str]:
    """The base URL of a server of models, in a process of its own."""
    program = [sys.executable, "-m", "bench.fleet", "--serve", str(turns)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        server.terminate()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    turns = 0

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self._say({"object": "list", "data": [{"id": "fake", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = answer(body, sum(one["role"] == "assistant" for one in body["messages"]), self.turns)
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        told: dict[str, Any] = {"id": "x", "object": "chat.completion", "created": 1, "model": "fake", "usage": USAGE}
        if not body.get("stream"):
            self._say(told | {"choices": [choice]})
            return
        calls = [{**call, "index": 0} for call in message["tool_calls"]]
        delta = {"index": 0, "delta": message | {"tool_calls": calls}, "finish_reason": "tool_calls"}
        line = json.dumps(told | {"object": "chat.completion.chunk", "choices": [delta]})
        self._answer(f"data: {line}\n\ndata: [DONE]\n\n".encode(), "text/event-stream")

    def _say(self, value: object) -> None:
        self._answer(json.dumps(value).encode(), "application/json")

    def _answer(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def serve(turns: int) -> None:
    _Handler.turns = turns
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


def run(argv: list[str], environment: dict[str, str], folder: Path) -> Cost:
    """Of the program and all that it waited for; RuntimeError when it fails."""
    began = time.monotonic()
    with (folder / "out").open("w+b") as out:
        process = subprocess.Popen(argv, env=os.environ | environment, cwd=folder, stdout=out, stderr=out)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            out.seek(0)
            raise RuntimeError(f"{argv[:3]} ended with {process.returncode}: {out.read().decode()[-2000:]}")
    return Cost(time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def ours(folder: Path, url: str, tasks: int, at_once: int) -> tuple[list[str], dict[str, str]]:
    demo = folder / "demo"
    demo.mkdir(exist_ok=True)
    (demo / "data.csv").write_text("a\nb\n")
    lines = [json.dumps({"id": f"t{number}", "task": f"Do what you want, number {number}.", "folder": "demo"})
             for number in range(tasks)]  # fmt: skip
    (folder / "tasks.jsonl").write_text("\n".join(lines) + "\n")
    argv = [sys.executable, "-m", "stockade.cli", "batch", "run", "tasks.jsonl", "--model", "openai/fake", "--answers",
            "native", "--parallel", str(at_once), "--discard", "--store", str(folder / "runs.db")]  # fmt: skip
    states = {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CONFIG", "CACHE", "DATA")}
    return argv, {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none", **states}


def by_workers(tasks: int, turns: int, rounds: int) -> None:
    """Prints a table."""
    rows = []
    with served(turns) as url, counted() as cpu_s:
        for at_once in (1, 2, 4, 8):
            for on in ((), ("--on", "ray")):
                found = [
                    min(_of_one(url, count, at_once, on, cpu_s) for _ in range(rounds)) for count in (at_once, tasks)
                ]
                wall_s, used_s = (found[1][part] - found[0][part] for part in (0, 1))
                print(f"{at_once} {on}: {found}", file=sys.stderr)
                more = tasks - at_once
                each = f"{wall_s / more * 1000:.0f} ms", f"{used_s / more * 1000:.0f} ms"
                rows.append((f"{at_once}, {'Ray' if on else 'one process'}", *each, f"{found[0][0]:.1f} s"))
    print(draw((f"{tasks} tasks, {turns} commands each; at a time", "time a task", "CPU a task", "the start"), rows))


def _of_one(url: str, tasks: int, at_once: int, on: tuple[str, ...], cpu_s: Callable[[], float]) -> tuple[float, float]:
    """Wall and processor seconds of a batch."""
    with tempfile.TemporaryDirectory() as place:
        argv, environment = ours(Path(place), url, tasks, at_once)
        before = cpu_s()
        return run([*argv, *on], environment, Path(place)).wall_s, cpu_s() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", action="store_true")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve is not None:
        serve(asked.serve)
        return
    if asked.workers:
        by_workers(asked.tasks, asked.turns, asked.rounds)
        return
    mini = next(peer for peer in PEERS if peer.name.startswith("mini"))
    mini = Peer(f"{mini.name}, unsealed", mini.requirements, "peer_mini_batch.py", mini.environment)
    costs: dict[str, list[Cost]] = {}
    with served(asked.turns) as url:
        for _ in range(asked.rounds):
            for peer in (None, mini, INSPECT):
                with tempfile.TemporaryDirectory() as place:
                    folder = Path(place)
                    if peer is None:
                        name, (argv, environment) = "stockade, sealed", ours(folder, url, asked.tasks, asked.at_once)
                    else:
                        made = installed(
                            Peer(peer.name.removesuffix(", unsealed"), peer.requirements, peer.script, peer.environment)
                        )
                        name = peer.name
                        argv = [made.argv[0], str(BENCH / peer.script), str(asked.tasks), str(asked.at_once)]
                        environment = {**made.environment, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
                    costs.setdefault(name, []).append(run(argv, environment, folder))
                    print(f"{name}: {costs[name][-1]}", file=sys.stderr)
    best = {name: _least(found) for name, found in costs.items()}
    first = next(iter(best.values()))
    rows = [
        (
            name,
            f"{one.wall_s:.1f} s",
            f"{one.wall_s / asked.tasks * 1000:.0f} ms",
            f"{one.cpu_s / asked.tasks * 1000:.0f} ms",
            f"{one.peak_mib:.0f} MiB",
            f"{one.cpu_s / first.cpu_s:.2f}",
        )
        for name, one in best.items()
    ]
    what = f"{asked.tasks} tasks, {asked.turns} commands each"
    print(draw((what, "all", "time a task", "CPU a task", "largest process", "CPU, ours is 1"), rows))


def _least(found: list[Cost]) -> Cost:
    return Cost(*(min(getattr(one, field) for one in found) for field in ("wall_s", "cpu_s", "peak_mib")))


if __name__ == "__main__":
    main()
