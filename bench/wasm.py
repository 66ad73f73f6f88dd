"""What a WebAssembly tool costs: compiled for the first time, from the cache, a call, its memory; beside programs.

    nice -n 19 python -m bench.wasm COMPONENT.wasm:ARGUMENTS ...

ARGUMENTS is the JSON of a call of the component's first function. Wall-clock milliseconds, median and lowest; CPU is
that of everything that was started, as the kernel adds it up. The cache is a new one.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from wasmtime import wat2wasm

from stockade.assemble import prepare_sandbox
from stockade.assemble.wasm import open_component, with_tool
from stockade.core.policy import FolderRule, Policy
from stockade.core.ports import Sandbox
from stockade.tools.wasm.component import Component
from stockade.tools.wasm.toolbox import WasmToolbox

CALLS = 40
LIMIT_S, RUNAWAYS = 0.5, 5
SPIN = """(component (core module $m (func (export "spin") (loop (br 0))) (func (export "idle")))
  (core instance $i (instantiate $m))
  (func (export "idle") (canon lift (core func $i "idle")))
  (func (export "spin") (canon lift (core func $i "spin"))))"""
PYTHON = ("python3", "-I", "-S", "-c", "import sys; sys.stdout.write(sys.argv[1])", "hello")
_MEMORY = "for p in /proc/[0-9]*; do grep -qs stockade.tools.wasm $p/cmdline && grep VmRSS $p/status; done; true"


@dataclass
class Row:
    """One way to have a tool; milliseconds, MiB."""

    what: str
    compiled: str = ""
    cached: str = ""
    load: str = ""
    first: str = ""
    calls: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    ours: str = ""
    memory: str = ""

    def cells(self) -> tuple[str, ...]:
        return (self.what, self.compiled, self.cached, self.load, self.first, _two(self.calls), _two(self.inside),
                self.ours, self.memory)  # fmt: skip


def _two(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.1f} / {min(seconds) * 1000:.1f}" if seconds else ""


def _cpu() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


async def _timed(work: Callable[[], Awaitable[Any]]) -> tuple[Any, float, float]:
    """(result, wall seconds, CPU seconds of what has ended)."""
    begun, used = time.perf_counter(), _cpu()
    result = await work()
    return result, time.perf_counter() - begun, _cpu() - used


async def component(path: Path, arguments: dict[str, Any], folder: Path) -> Row:
    """All figures of one component."""
    data = await anyio.Path(path).read_bytes()
    row = Row(f"{path.stem} ({len(data) >> 10} KiB)")
    with tempfile.TemporaryDirectory() as made:
        copied = Path(shutil.copy2(path, made))
        for beside in path.parent.glob(f"{path.stem}.policy.*"):
            shutil.copy2(beside, made)
        found, wall, cpu = await _timed(lambda: open_component(copied))
        row.compiled = f"{wall * 1000:.0f} ({cpu * 1000:.0f})"
        found, wall, cpu = await _timed(lambda: open_component(copied))
        row.cached = f"{wall * 1000:.1f} ({cpu * 1000:.1f})"
        await _called(found, arguments, folder, row)
    return row


async def _called(found: Component, arguments: dict[str, Any], folder: Path, row: Row) -> None:
    policy = with_tool(found)(Policy(folders=(FolderRule(host=str(folder), mode="ro"),)))
    with tempfile.TemporaryDirectory() as base:
        async with await prepare_sandbox(policy, "bubblewrap", Path(base)) as sandbox:
            async with WasmToolbox((found,), sandbox, policy) as box:
                name = box.specs[0].name
                reply, wall, _ = await _timed(lambda: box.ask(name, arguments))
                assert reply.status != "error", reply
                row.first, row.load = f"{wall * 1000:.0f}", f"{(reply.load_s or 0) * 1000:.1f}"
                used = _cpu()
                for _ in range(CALLS):
                    reply, wall, _ = await _timed(lambda: box.ask(name, arguments))
                    row.calls.append(wall)
                    row.inside.append(reply.cpu_s or 0)
                row.ours = f"{(_cpu() - used) / CALLS * 1000:.1f}"
                row.memory = await _resident(sandbox)


async def _resident(sandbox: Sandbox) -> str:
    found = (await sandbox.exec(["sh", "-c", _MEMORY])).stdout.decode().split()
    return f"{int(found[1]) / 1024:.0f}" if len(found) > 1 else ""


async def programs(folder: Path) -> list[Row]:
    """The same answer from a program, started anew for each call in a sandbox that is there."""
    rows = []
    policy = Policy(folders=(FolderRule(host=str(folder), mode="ro"),))
    with tempfile.TemporaryDirectory() as base:
        async with await prepare_sandbox(policy, "bubblewrap", Path(base)) as sandbox:
            for what, argv in (("/bin/echo in bubblewrap", ("/bin/echo", "hello")), ("Python in bubblewrap", PYTHON)):
                row = Row(what)
                for _ in range(CALLS):
                    _, wall, _ = await _timed(lambda argv=argv: sandbox.exec(argv))  # type: ignore[misc]
                    row.calls.append(wall)
                rows.append(row)
    return rows


async def runaway(folder: Path) -> list[float]:
    """How long after its limit a loop without end was answered, each time."""
    path = folder / "spin.wasm"
    await anyio.Path(path).write_bytes(wat2wasm(SPIN))
    await anyio.Path(folder / "spin.policy.yaml").write_text(f"limits: {{timeout_s: {LIMIT_S}}}")
    found = await open_component(path)
    policy = with_tool(found)(Policy())
    late = []
    with tempfile.TemporaryDirectory() as base:
        async with await prepare_sandbox(policy, "bubblewrap", Path(base)) as sandbox:
            async with WasmToolbox((found,), sandbox, policy) as box:
                for _ in range(RUNAWAYS):
                    assert (await box.ask("spin_idle", {})).status == "success"  # the process is there
                    reply, wall, _ = await _timed(lambda: box.ask("spin_spin", {}))
                    assert reply.kind == "timeout"
                    late.append(wall - LIMIT_S)
    return late


async def main(asked: list[str]) -> None:
    with tempfile.TemporaryDirectory() as made:
        os.environ["XDG_CACHE_HOME"] = f"{made}/cache"
        folder = Path(made, "data")
        await anyio.Path(folder).mkdir()
        (folder / "data.csv").write_text("name,city\nAda,London\nKurt,Wien\n")
        rows = []
        for one in asked:
            path, _, arguments = one.partition(":")
            rows.append(await component(Path(path), json.loads(arguments or "{}"), folder))
        rows += await programs(folder)
        late = await runaway(folder)
    heads = ("tool", "compiled once (CPU)", "from the cache (CPU)", "load", "first call", "call, median / lowest",
             "CPU in the worker", "CPU of ours", "worker MiB")  # fmt: skip
    for cells in (heads, tuple("---" for _ in heads), *(row.cells() for row in rows)):
        sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.write(f"A loop, answered after its limit of {LIMIT_S} s by: {_two(late)} ms\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("components", nargs="+", metavar="COMPONENT.wasm:ARGUMENTS")
    anyio.run(main, parser.parse_args().components)
