"""What a WebAssembly tool costs, compiled for the first time, from the cache, and in each call; beside the same tool as
a program that is started for each call, and as an MCP server on its standard streams (the official `mcp` package).

    python -m bench.wasm COMPONENT.wasm:ARGUMENTS ...

ARGUMENTS is the JSON of a call of the component's first function; a function of another name is named as
`COMPONENT.wasm:FUNCTION:ARGUMENTS`. All run in one sandbox, and each round calls every one of them once: what else the
machine does meets all alike. Milliseconds. CPU is that of our process, the sandbox and all in it (a control group of
version 1 counts it; as root). The cache is a new one.
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
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from wasmtime import wat2wasm

from bench.cpu_group import counted
from bench.processes import descendants, peak_rss
from bench.table import draw
from stockade.core.ports import Sandbox
from stockade.core.tool_plan import ToolContext, ToolPlan, ToolRequest
from stockade.plugins.wasm.component import Component
from stockade.plugins.wasm.prepare import prepared
from stockade.plugins.wasm.toolbox import WasmToolbox, with_tool
from stockade.plugins.wasm.worker import Reply
from stockade.runtime.sandboxes import own_sandbox, prepare_sandbox
from stockade.tools.mcp.file import mcp_file
from stockade_sandbox.policy import FolderRule, Policy

CALLS = 60
LIMIT_S, RUNAWAYS = 0.5, 5
MIB = 1 << 20
SPIN = """(component (core module $m (func (export "spin") (loop (br 0))) (func (export "idle")))
  (core instance $i (instantiate $m))
  (func (export "idle") (canon lift (core func $i "idle")))
  (func (export "spin") (canon lift (core func $i "spin"))))"""
COLUMNS = """
import csv
def columns(path: str) -> list[str]:
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [str(len(rows)), *(rows[0] if rows else ())]
"""
SERVER = f"""
from mcp.server import MCPServer
server = MCPServer("bench", log_level="ERROR")
{COLUMNS}
def echo(value: str) -> str:
    return value
server.tool()(columns)
server.tool()(echo)
server.run()
"""
ECHO = "import sys; sys.stdout.write(sys.argv[1])"
CSV = f"{COLUMNS}\nimport json, sys\nsys.stdout.write(json.dumps(columns(sys.argv[1])))"
PATH = "/workspace/data.csv"
Call = Callable[[], Awaitable[Any]]


@dataclass
class Way:
    """One way to have a tool; seconds, bytes."""

    what: str
    call: Call
    compiled: str = ""
    ready: str = ""
    load: str = ""
    pid: int | None = None
    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)

    def cells(self) -> tuple[str, ...]:
        return (self.what, self.compiled, self.ready, self.load, _two(self.walls), _two(self.cpus), _two(self.inside),
                *self._memory())  # fmt: skip

    def _memory(self) -> tuple[str, str]:
        """(at rest, what a call adds to it), MiB."""
        if self.pid is None:
            return "", ""
        rest = resident(self.pid)
        return f"{rest / MIB:.0f}", f"{max(0, peak_rss(self.pid) - rest) / MIB:.1f}"


def _two(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.1f} / {min(seconds) * 1000:.1f}" if seconds else ""


def resident(pid: int) -> int:
    """Bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


@dataclass
class Bench:
    """Everything in one sandbox. `cpu_s`: of us and all that we started, so far."""

    folder: Path
    cpu_s: Callable[[], float]
    policy: Policy
    stack: AsyncExitStack
    ways: list[Way] = field(default_factory=list)
    components: list[tuple[Way, Component, str, dict[str, Any]]] = field(default_factory=list)

    async def timed(self, work: Call) -> tuple[Any, float, float]:
        """(result, wall seconds, CPU seconds)."""
        begun, used = time.perf_counter(), self.cpu_s()
        result = await work()
        return result, time.perf_counter() - begun, self.cpu_s() - used

    async def compile(self, path: Path, name: str, arguments: dict[str, Any]) -> None:
        """A copy of the component in the new cache."""
        data = await anyio.Path(path).read_bytes()
        made = self.folder.parent / f"component-{len(self.components)}"
        made.mkdir()
        copied = Path(shutil.copy2(path, made))
        for beside in path.parent.glob(f"{path.stem}.policy.*"):
            shutil.copy2(beside, made)
        found, wall, cpu = await self.timed(lambda: prepared(copied, own_sandbox))
        way = Way(f"{path.parent.name}/{path.name}, {len(data) >> 10} KiB", _nothing)
        way.compiled = f"{wall * 1000:.0f} ({cpu * 1000:.0f})"
        self.components.append((way, found, name, arguments))
        self.policy = with_tool(found, self.policy)

    async def start(self, sandbox: Sandbox, plan: ToolPlan) -> None:
        """Each is ready when it has answered for the first time: in a sandbox that is there, from its cache."""
        for way, found, name, arguments in self.components:

            async def first(
                way: Way = way, found: Component = found, name: str = name, given: dict[str, Any] = arguments
            ) -> Reply:
                cached = await prepared(Path(found.file), own_sandbox)
                box = await self.stack.enter_async_context(WasmToolbox((cached,), sandbox, self.policy))
                called = name or box.specs[0].name
                way.call = lambda: box.ask(called, given)
                reply: Reply = await way.call()
                assert reply.status != "error", reply
                return reply

            reply = await self.started(way, first)
            way.load = f"{(reply.load_s or 0) * 1000:.1f}"
        await self.servers(sandbox, plan)
        for what, argv in (
            ("/bin/echo, a program a call", ("/bin/echo", "hello")),
            ("echo in Python, a program a call", ("python3", "-I", "-S", "-c", ECHO, "hello")),
            ("csv in Python, a program a call", ("python3", "-I", "-S", "-c", CSV, PATH)),
        ):
            self.ways.append(Way(what, lambda argv=argv: sandbox.exec(argv)))  # type: ignore[misc]

    async def servers(self, sandbox: Sandbox, plan: ToolPlan) -> None:
        echo, rows = Way("echo in Python, MCP server", _nothing), Way("csv in Python, the same server", _nothing)

        async def first() -> Any:
            (made,) = plan.toolboxes(ToolContext(sandbox, self.policy, "writing", self.folder.parent / "state"))
            box = await self.stack.enter_async_context(made)
            echo.call = lambda: box.call("bench__echo", {"value": "hello"}, 60)
            rows.call = lambda: box.call("bench__columns", {"path": PATH}, 60)
            return await echo.call()

        await self.started(echo, first)
        assert (await rows.call()).status == "data"
        self.ways.append(rows)

    async def started(self, way: Way, first: Call) -> Any:
        before = descendants(os.getpid())
        result, wall, cpu = await self.timed(first)
        way.ready = f"{wall * 1000:.0f} ({cpu * 1000:.0f})"
        new = [
            pid for pid in descendants(os.getpid()) - before if b"/opt/stockade" in _argv(pid) or b"mcp" in _argv(pid)
        ]
        way.pid = new[0] if new else None
        self.ways.append(way)
        return result

    async def rounds(self) -> None:
        for way in self.ways:
            if way.pid is not None:
                await anyio.Path(f"/proc/{way.pid}/clear_refs").write_text("5")  # the peak begins anew; proc(5)
        for _ in range(CALLS):
            for way in self.ways:
                reply, wall, cpu = await self.timed(way.call)
                way.walls.append(wall)
                way.cpus.append(cpu)
                if isinstance(reply, Reply):
                    way.inside.append(reply.cpu_s or 0)


async def _nothing() -> None:
    """Until it is started."""


def _argv(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


async def runaway(folder: Path) -> list[float]:
    """How long after its limit a loop without end was answered, each time."""
    path = folder / "spin.wasm"
    await anyio.Path(path).write_bytes(wat2wasm(SPIN))
    await anyio.Path(folder / "spin.policy.yaml").write_text(f"limits: {{timeout_s: {LIMIT_S}}}")
    found = await prepared(path, own_sandbox)
    policy = with_tool(found, Policy())
    late = []
    with tempfile.TemporaryDirectory() as base:
        async with await prepare_sandbox(policy, "bubblewrap", Path(base)) as sandbox:
            async with WasmToolbox((found,), sandbox, policy) as box:
                for _ in range(RUNAWAYS):
                    assert (await box.ask("spin_idle", {})).status == "success"  # the process is there
                    begun = time.perf_counter()
                    reply = await box.ask("spin_spin", {})
                    late.append(time.perf_counter() - begun - LIMIT_S)
                    assert reply.kind == "timeout"
    return late


async def main(asked: list[str], made: Path, cpu_s: Callable[[], float]) -> None:
    os.environ["XDG_CACHE_HOME"] = f"{made}/cache"
    folder = made / "data"
    folder.mkdir()
    (folder / "data.csv").write_text("name,city\nAda,London\nKurt,Wien\n")
    servers = made / "servers.json"
    python = str(Path(sys.prefix) / "bin" / "python")
    servers.write_text(json.dumps({"mcpServers": {"bench": {"command": python, "args": ["-c", SERVER]}}}))
    async with AsyncExitStack() as stack:
        bench = Bench(folder, cpu_s, Policy(folders=(FolderRule(host=str(folder), mode="ro"),)), stack)
        for one in asked:
            path, _, rest = one.partition(":")
            name, _, arguments = rest.partition(":") if not rest.startswith("{") else ("", "", rest)
            await bench.compile(Path(path), name, json.loads(arguments or "{}"))
        plan = mcp_file(ToolRequest(servers, ToolPlan(policy=bench.policy)))
        bench.policy = plan.policy
        sandbox = await stack.enter_async_context(await prepare_sandbox(plan.policy, "bubblewrap", made / "box"))
        await bench.start(sandbox, plan)
        await bench.rounds()
        heads = ("tool", "compiled once (CPU)", "ready, cached (CPU)", "load", "call, median / lowest", "CPU of a call",
                 "of it inside", "MiB at rest", "in a call")  # fmt: skip
        sys.stdout.write(draw(heads, [way.cells() for way in bench.ways]) + "\n")
    late = await runaway(folder)
    sys.stdout.write(
        f"A loop, answered after its limit of {LIMIT_S} s by: {_two(late)} ms (longest {max(late) * 1000:.1f})\n"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("components", nargs="+", metavar="COMPONENT.wasm:ARGUMENTS")
    given = parser.parse_args().components
    with counted() as count, tempfile.TemporaryDirectory() as temporary:
        anyio.run(main, given, Path(temporary), count)
