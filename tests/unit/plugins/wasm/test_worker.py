"""The process inside, replaced where it was broken."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from stockade.core.errors import UsageError
from stockade.core.ports import ExecResult
from stockade.plugins.wasm.toolbox import WasmToolbox, granted
from stockade.plugins.wasm.worker import Reply, check_place, worker_in
from stockade.testing import MemorySandbox
from stockade_sandbox.policy import Policy
from tests.support import wasm

pytestmark = pytest.mark.anyio


async def test_what_ends_a_call_and_what_ends_the_process(tmp_path: Path) -> None:
    component = await wasm.opened(tmp_path, wasm.HOSTILE, "limits: {timeout_s: 0.3}\ntools: {shell: {offered: false}}")
    async with wasm.sandbox_for(tmp_path, component) as (sandbox, policy):
        fixed = granted(component, policy)
        async with worker_in(await check_place(sandbox, None)) as worker:

            async def ask(function: str, arguments: dict[str, Any], **other: object) -> Reply:
                request = {**fixed, "path": [function], "arguments": arguments, **other}
                return await worker.ask(request, 0.3, 65536)

            assert (await ask("add", {"a": 40, "b": 2})).text == "42"
            assert (await ask("spin", {})).kind == "timeout"
            assert (await ask("crash", {})).kind == "trap"
            assert (await ask("add", {"a": float("nan"), "b": 2})).kind == "arguments"
            gone = await ask("add", {}, compiled="/no/such.cwasm")
            assert (gone.status, gone.kind) == ("error", "crash")
            assert "status" in gone.text


async def test_a_process_that_was_killed_is_an_error_and_the_next_call_has_a_new_one(tmp_path: Path) -> None:
    component = await wasm.opened(tmp_path, wasm.ECHO.read_bytes(), name="echo")
    kill = "for p in /proc/[0-9]*; do grep -qs stockade.plugins.wasm $p/cmdline && kill -9 ${p#/proc/}; done; true"
    async with wasm.sandbox_for(tmp_path, component) as (sandbox, policy):
        async with WasmToolbox((component,), sandbox, policy) as box:
            assert (await box.call("Echo", {"value": "one"})).text == "one"
            await sandbox.run(kill)
            dead = await box.ask("Echo", {"value": "two"})
            assert (dead.status, dead.kind) == ("error", "crash")
            assert (await box.call("Echo", {"value": "three"})).text == "three"


async def test_a_cancelled_call_ends_inside_too(tmp_path: Path) -> None:
    component = await wasm.opened(tmp_path, wasm.SLEEPER, "limits: {timeout_s: 300}")
    async with wasm.toolbox(tmp_path, component) as box:
        assert (await box.ask("tool_sleep", {"nanoseconds": 1})).status == "success"
        with anyio.move_on_after(0.2) as cancelled:
            await box.ask("tool_sleep", {"nanoseconds": 10**12})
        assert cancelled.cancelled_caught
        assert (await box.ask("tool_sleep", {"nanoseconds": 1})).status == "success"


async def test_a_call_wakes_no_thread_but_the_one_that_does_it(tmp_path: Path) -> None:
    """Each switch of threads waits for a processor: on a loaded machine that was most of a call."""
    component = await wasm.opened(tmp_path, wasm.ECHO.read_bytes(), name="echo")
    count = (
        "for p in /proc/[0-9]*; do grep -qs stockade.plugins.wasm $p/cmdline && "
        "grep -h ^voluntary $p/task/*/status; done; true"
    )
    calls = 30
    async with wasm.sandbox_for(tmp_path, component) as (sandbox, policy):
        async with WasmToolbox((component,), sandbox, policy) as box:

            async def switches() -> int:
                words = (await sandbox.exec(["sh", "-c", count])).stdout.split()
                return sum(int(word) for word in words if word.isdigit())

            await box.call("Echo", {"value": "first"})
            before = await switches()
            for _ in range(calls):
                await box.call("Echo", {"value": "again"})
            assert before > 0
            assert await switches() - before < 2 * calls  # one each is the wait for the next call


async def test_a_sandbox_without_this_python_is_said_before_the_first_call(tmp_path: Path) -> None:
    class Elsewhere(MemorySandbox):
        async def exec(
            self,
            argv: Sequence[str],
            stdin: bytes = b"",
            timeout_s: float | None = None,
            max_output_bytes: int = 1 << 20,
        ) -> ExecResult:
            return ExecResult(exit_code=127, stdout=b"", stderr=b"not found")

    component = await wasm.opened(tmp_path, wasm.ECHO.read_bytes(), name="echo")
    with pytest.raises(UsageError, match="cannot run in this memory sandbox"):
        async with WasmToolbox((component,), Elsewhere(), Policy()):
            pass
