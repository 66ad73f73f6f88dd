"""Our sandbox beside others, in one run: start, a command, many at once, a big folder, a file in and out, one shot.

    python bench/sandbox.py beside --npm FOLDER --json FILE

FOLDER: `npm install --prefix FOLDER @anthropic-ai/sandbox-runtime @openai/codex`.

As root, with docker, runsc, ripgrep and socat. Each step of each of them is done once a round, one after the other, so
that what else the machine does meets all; ratios are to ours. `docker` is its client, of a daemon of ours, without a
network, on an image of five programs. What one of them cannot do, as to keep a sandbox open, is left empty.
"""

import argparse
import io
import json
import os
import statistics
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
from tests.support.engines import engine_environment

from bench import folders
from bench.command import machine
from bench.contenders import BENCH, STOCKADE
from bench.peers import Peer, installed
from bench.table import draw
from stockade_sandbox import AsyncSandbox

STEPS = ("start", "command", "at once", "big folder", "file in", "file out", "one shot")
REX = Peer("swe-rex 1.4.0", ("swe-rex==1.4.0",), "peer_shell.py")
PROGRAMS = ("/bin/bash", "/bin/sh", "/bin/true", "/bin/sleep", "/bin/ls")
IMAGE = "rivals:1"
LS = ("ls", "d0")
Spent = dict[str, list[float]]


class Clock:
    """What each step took, in ms."""

    def __init__(self) -> None:
        self.spent: Spent = {}
        self.failed = 0
        """Of the many at once."""

    def note(self, step: str, begun: float) -> None:
        self.spent.setdefault(step, []).append(1000 * (time.perf_counter() - begun))

    def run(self, step: str, argv: Sequence[str], cwd: Path | None = None) -> None:
        begun = time.perf_counter()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=cwd)
        self.note(step, begun)

    def at_once(self, argv: Sequence[str], count: int) -> None:
        begun = time.perf_counter()
        running = [
            subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            for _ in range(count)
        ]
        self.failed += sum(process.wait() != 0 for process in running)
        self.note("at once", begun)


async def ours(clock: Clock, big: Path, data: bytes, count: int) -> None:
    begun = time.perf_counter()
    async with AsyncSandbox() as box:
        clock.note("start", begun)
        begun = time.perf_counter()
        await box.exec(shell="true")
        clock.note("command", begun)
        begun = time.perf_counter()
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(box.exec, ["true"])
        clock.note("at once", begun)
        begun = time.perf_counter()
        await box.write_file("/tmp/x", data)
        clock.note("file in", begun)
        begun = time.perf_counter()
        assert await box.read_file("/tmp/x") == data
        clock.note("file out", begun)
    begun = time.perf_counter()
    async with AsyncSandbox(folder=str(big)) as box:
        assert (await box.exec(list(LS))).exit_code == 0
        clock.note("big folder", begun)
    clock.run("one shot", [str(STOCKADE), "sandbox", "exec", "--", "true"])


def docker(clock: Clock, runtime: str, big: Path, file: Path, count: int) -> None:
    """A container that sleeps, and `docker exec`; the folder is mounted itself, as there is no layer over it."""
    made = ["docker", "run", "--network", "none", "--runtime", runtime]
    begun = time.perf_counter()
    asked = subprocess.run([*made, "-d", IMAGE, "sleep", "600"], capture_output=True, check=True, text=True)
    clock.note("start", begun)
    name = asked.stdout.strip()
    try:
        clock.run("command", ["docker", "exec", name, "bash", "-c", "true"])
        clock.at_once(["docker", "exec", name, "true"], count)
        clock.run("file in", ["docker", "cp", str(file), f"{name}:/x"])
        clock.run("file out", ["docker", "cp", f"{name}:/x", f"{file}.out"])
    finally:
        subprocess.run(["docker", "rm", "-f", name], capture_output=True, check=True)
    clock.run("big folder", [*made, "--rm", "-v", f"{big}:/w", "-w", "/w", IMAGE, *LS])
    clock.run("one shot", [*made, "--rm", IMAGE, "true"])


def command_line(clock: Clock, argv: Sequence[str], big: Path, count: int) -> None:
    """Of those that make a sandbox for each command, and show the host's own folder."""
    clock.run("command", [*argv, "true"])
    clock.spent.setdefault("one shot", []).append(clock.spent["command"][-1])
    clock.at_once([*argv, "true"], count)
    clock.run("big folder", [*argv, *LS], big)


def swe_rex(clock: Clock, count: int, size: int) -> None:
    argv = [installed(REX).argv[0], str(BENCH / "peer_rex.py"), "1", str(count), str(size)]
    done = subprocess.run(argv, capture_output=True, check=True, text=True, env={**os.environ, "PS1": ""})
    for step, spent in json.loads(done.stdout).items():
        clock.spent.setdefault(step, []).extend(spent)


def image() -> None:
    """PROGRAMS and what they load, for docker."""
    loaded = subprocess.run(["ldd", *PROGRAMS], capture_output=True, check=True, text=True).stdout.split()
    files = {*PROGRAMS, *(word for word in loaded if word.startswith("/") and not word.endswith(":"))}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as tar:
        for path in files:
            tar.add(os.path.realpath(path), arcname=path)
    subprocess.run(["docker", "import", "-", IMAGE], input=packed.getvalue(), check=True, stdout=subprocess.DEVNULL)


async def measure(chosen: argparse.Namespace, base: Path) -> dict[str, Spent]:
    big, file, data = base / "big", base / "file", os.urandom(chosen.bytes)
    folders.fill(big, chosen.files)
    file.write_bytes(data)
    srt, codex = (str(chosen.npm / "node_modules" / ".bin" / name) for name in ("srt", "codex"))
    clocks = {name: Clock() for name in ("stockade", "docker", "docker, runsc", "runsc do", "srt", "codex", "swe-rex")}
    for number in range(chosen.rounds + 1):
        if number == 1:  # the first finds out about the machine
            clocks = {name: Clock() for name in clocks}
        print(f"round {number}", flush=True)
        count = chosen.count if number else 1
        await ours(clocks["stockade"], big, data, count)
        docker(clocks["docker"], "runc", big, file, count)
        docker(clocks["docker, runsc"], "runsc", big, file, count)
        command_line(clocks["runsc do"], ["runsc", "--network=none", "--platform=ptrace", "do"], big, count)
        command_line(clocks["srt"], [srt], big, count)
        command_line(clocks["codex"], [codex, "sandbox", "--"], big, count)
        swe_rex(clocks["swe-rex"], count, chosen.bytes)
        if number:
            print(drawn({name: clock.spent for name, clock in clocks.items()}), flush=True)
        print({name: f"{clock.failed} of those at once failed" for name, clock in clocks.items() if clock.failed})
    return {name: clock.spent for name, clock in clocks.items()}


def drawn(found: dict[str, Spent]) -> str:
    """Medians in ms, and how many times ours that is."""
    least = {step: statistics.median(spent) for step, spent in found["stockade"].items()}

    def cell(spent: Spent, step: str) -> str:
        if step not in spent:
            return ""
        middle = statistics.median(spent[step])
        return f"{middle:.1f}" + ("" if spent is found["stockade"] else f" ({middle / least[step]:.1f}x)")

    return draw(["ms", *found], [[step, *(cell(spent, step) for spent in found.values())] for step in STEPS])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npm", type=Path, required=True, metavar="FOLDER", help="with srt and codex")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=100, help="programs at once")
    parser.add_argument("--files", type=int, default=50_000, help="in the big folder")
    parser.add_argument("--bytes", type=int, default=16 << 20, help="of the file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    chosen = parser.parse_args()
    os.environ.update(engine_environment("docker"))
    image()
    with tempfile.TemporaryDirectory(prefix="stockade-rivals-") as base:
        found = anyio.run(measure, chosen, Path(base))
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    if chosen.json:
        chosen.json.write_text(json.dumps({"machine": machine(), "spent": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
