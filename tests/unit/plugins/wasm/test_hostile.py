"""Components that mean harm: each ends as a tool's error within its limit, and the next call is as if nothing was."""

from pathlib import Path
from typing import Any

import pytest

from stockade.core.errors import UsageError
from stockade.plugins.wasm.prepare import prepared
from stockade.plugins.wasm.toolbox import WasmToolbox
from stockade.runtime.sandboxes import own_sandbox
from tests.support import wasm

pytestmark = pytest.mark.anyio
QUICK = "limits: {timeout_s: 0.3, memory: 16M}\ntools: {shell: {name: not_a_shell}}"
CASES: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    ("tool_spin", {}, "timeout", "did not end within 0.3 s"),
    ("tool_deep", {"n": 1}, "stack", "its stack is full (stack limit 1 mib)"),
    ("tool_crash", {}, "trap", "crashed"),
    ("tool_huge", {}, "output", "over the limit"),
    ("tool_bad_text", {}, "trap", "utf-8"),
    ("tool_outside", {}, "trap", "out of bounds"),
    ("tool_add", {"a": 2**32, "b": 1}, "arguments", "a must be a whole number from 0 to 4294967295"),
    ("tool_add", {"a": -1, "b": 1}, "arguments", "a must be a whole number"),
    ("tool_add", {"a": 10**400, "b": 1}, "arguments", "a must be a whole number"),
    ("tool_add", {"a": "one", "b": 1}, "arguments", "a must be a whole number"),
    ("tool_add", {"a": True, "b": 1}, "arguments", "a must be a whole number"),
    ("not_a_shell", {}, "trap", "crashed"),
)


async def _alive(box: WasmToolbox) -> None:
    reply = await box.ask("tool_add", {"a": 40, "b": 2})
    assert (reply.status, reply.text) == ("data", "42")


async def test_each_is_an_error_of_its_kind_and_the_next_call_is_well(tmp_path: Path) -> None:
    component = await wasm.opened(tmp_path, wasm.HOSTILE, QUICK)
    async with wasm.toolbox(tmp_path, component) as box:
        for name, arguments, kind, words in CASES:
            reply = await box.ask(name, arguments)
            assert (reply.status, reply.kind) == ("error", kind), (name, reply)
            assert words in reply.text.lower(), (name, reply)
            await _alive(box)


async def test_memory_ends_at_its_limit(tmp_path: Path) -> None:
    component = await wasm.opened(tmp_path, wasm.HOSTILE, QUICK)
    async with wasm.toolbox(tmp_path, component) as box:
        pages = int((await box.ask("tool_grow", {})).text)
    assert pages * 65536 <= 16 << 20


async def test_more_memory_than_allowed_from_the_start(tmp_path: Path) -> None:
    component = await wasm.opened(tmp_path, wasm.HOSTILE, QUICK.replace("16M", "1M"))
    async with wasm.toolbox(tmp_path, component) as box:
        reply = await box.ask("tool_add", {"a": 1, "b": 2})
    assert (reply.status, reply.kind) == ("error", "memory")
    assert "(memory limit 1 MiB)" in reply.text


async def test_fuel_is_used_up(tmp_path: Path) -> None:
    component = await wasm.opened(tmp_path, wasm.HOSTILE, QUICK.replace("memory", "fuel: 100000, memory"))
    async with wasm.toolbox(tmp_path, component) as box:
        reply = await box.ask("tool_spin", {})
        assert (reply.status, reply.kind) == ("error", "fuel")
        await _alive(box)


async def test_a_sleeper_is_stopped_too(tmp_path: Path) -> None:
    component = await wasm.opened(tmp_path, wasm.SLEEPER, "limits: {timeout_s: 0.3}")
    async with wasm.toolbox(tmp_path, component) as box:
        late = await box.ask("tool_sleep", {"nanoseconds": 10**12})
        assert (late.status, late.kind) == ("error", "timeout")
        assert (await box.ask("tool_sleep", {"nanoseconds": 1000})).status == "success"


async def test_the_callers_limit_is_held_where_it_is_shorter(tmp_path: Path) -> None:
    component = await wasm.opened(tmp_path, wasm.SLEEPER)
    async with wasm.toolbox(tmp_path, component) as box:
        late = await box.ask("tool_sleep", {"nanoseconds": 10**12}, timeout_s=0.2)
    assert "within 0.2 s" in late.text


async def test_a_name_of_a_built_in_tool_is_refused_with_the_way_out(tmp_path: Path) -> None:
    data = wasm.component_of('(func (export "f"))', '(func (export "read-file") (canon lift (core func $i "f")))')
    component = await wasm.opened(tmp_path, data, name="read")
    assert component.tools[0].spec.name == "read_read_file"
    for squatter in ("shell", "Read-File", "FINISH"):
        policy = f"tools: {{read-file: {{name: {squatter}}}}}"
        with pytest.raises(UsageError, match="built in"):
            await wasm.opened(tmp_path, data, policy, name="read")


async def test_two_components_cannot_have_one_name(tmp_path: Path) -> None:
    one = await wasm.opened(tmp_path, wasm.ECHO.read_bytes(), name="one")
    two = await wasm.opened(tmp_path, wasm.ECHO.read_bytes(), name="two")
    with pytest.raises(UsageError, match="'Echo' already"):
        async with wasm.toolbox(tmp_path, one, two):
            pass


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no WebAssembly"),
        (b"#!/bin/sh\n", "no WebAssembly"),
        (wasm.wasm("(module)"), "core module"),
        (b"\0asm\x0d\0\x01\0garbage", "cannot be used"),
        (wasm.wasm("(component)"), "no function that could be a tool"),
        (wasm.wasm('(component (import "evil:host/x@1.0.0" (instance (export "f" (func)))))'), "evil:host/x"),
        (
            wasm.wasm('(component (import "wasi:http/outgoing-handler@0.2.0" (instance (export "handle" (func)))))'),
            "http",
        ),
    ],
)
async def test_what_is_no_usable_component_is_said_in_a_line(tmp_path: Path, data: bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words) as found:
        await wasm.opened(tmp_path, data)
    assert "\n" not in found.value.message


async def test_a_suffix_of_another_kind_is_refused_as_the_llama_cpp_agent_does(tmp_path: Path) -> None:
    path = tmp_path / "tool.bin"
    path.write_bytes(wasm.ECHO.read_bytes())
    with pytest.raises(UsageError, match=r"must have a \.wasm extension"):
        await prepared(path, own_sandbox)


async def test_resources_are_left_out_with_the_reason(tmp_path: Path) -> None:
    data = wasm.wasm("""(component
      (core module $m (func (export "f") (param i32)) (func (export "g") (result i32) (i32.const 7)))
      (core instance $i (instantiate $m))
      (type $r' (resource (rep i32)))
      (export $r "thing" (type $r'))
      (func (export "use") (param "it" (own $r)) (canon lift (core func $i "f")))
      (func (export "seven") (result u32) (canon lift (core func $i "g"))))""")
    component = await wasm.opened(tmp_path, data)
    assert [tool.spec.name for tool in component.tools] == ["tool_seven"]
    assert component.skipped[0].path == ("use",)
    assert "resource" in component.skipped[0].reason


async def test_metadata_that_does_not_end_is_no_tool(tmp_path: Path) -> None:
    core = '(func (export "m") (result i32) (loop (br 0)) unreachable) (func (export "e"))'
    lifted = (
        '(func (export "get-metadata") (result string) (canon lift (core func $i "m") $LIFT))'
        '(func (export "execute") (canon lift (core func $i "e")))'
    )
    with pytest.raises(UsageError, match="does not end"):
        await wasm.opened(tmp_path, wasm.component_of(core, lifted), "limits: {timeout_s: 0.3}")


async def test_types_that_unfold_to_millions_are_left_out(tmp_path: Path) -> None:
    types = ["(type $t0 (tuple u8 u8))"]
    types += [f"(type $t{n} (tuple $t{n - 1} $t{n - 1}))" for n in range(1, 15)]
    core = '(func (export "f") (param i32)) (func (export "g") (result i32) (i32.const 7))'
    lifted = (
        '(func (export "bomb") (param "v" $t14) (canon lift (core func $i "f") $LIFT))'
        '(func (export "seven") (result u32) (canon lift (core func $i "g")))'
    )
    component = await wasm.opened(tmp_path, wasm.component_of(core, lifted, types=" ".join(types)))
    assert [tool.spec.name for tool in component.tools] == ["tool_seven"]
    assert "more than 2000" in component.skipped[0].reason
