"""What a component finds of the machine: nothing but what its policy names, and nothing of the call before."""

from pathlib import Path

import pytest

from stockade.plugins.wasm.toolbox import WasmToolbox
from stockade_sandbox.policy import FolderRule
from tests.support import wasm

pytestmark = pytest.mark.anyio
_MEMORY = """
  (core module $memory (memory (export "memory") 4)
    (global $next (mut i32) (i32.const 4096))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
      (global.set $next (i32.add (local.get $at) (local.get 3)))
      (local.get $at)))
  (core instance $own (instantiate $memory))"""
_LOWERED = '(memory (core memory $own "memory")) (realloc (core func $own "realloc"))'


def _counter(interface: str, function: str, result: str, before: str = "", types: str = "") -> bytes:
    """`count`: how many entries a function of WASI without arguments gives."""
    return wasm.wasm(f"""(component {before}
      (import "{interface}" (instance $from {types}
        (export "{function}" (func (result {result})))))
      {_MEMORY}
      (core func $get (canon lower (func $from "{function}") {_LOWERED}))
      (core module $m
        (import "own" "memory" (memory 1))
        (import "w" "get" (func $get (param i32)))
        (func (export "count") (result i32) (call $get (i32.const 1024)) (i32.load (i32.const 1028))))
      (core instance $i (instantiate $m (with "own" (instance $own)) (with "w" (instance (export "get" (func $get))))))
      (func (export "count") (result u32) (canon lift (core func $i "count"))))""")


VARIABLES = _counter("wasi:cli/environment@0.2.0", "get-environment", "(list (tuple string string))")
ARGUMENTS = _counter("wasi:cli/environment@0.2.0", "get-arguments", "(list string)")
FOLDERS = _counter(
    "wasi:filesystem/preopens@0.2.0",
    "get-directories",
    "(list (tuple (own $d) string))",
    before='(import "wasi:filesystem/types@0.2.0" (instance $t (export "descriptor" (type (sub resource)))))'
    '(alias export $t "descriptor" (type $descriptor))',
    types='(alias outer 1 $descriptor (type $e)) (export "descriptor" (type $d (eq $e)))',
)
STATE = wasm.component_of(
    '(global $n (mut i32) (i32.const 0)) (func (export "f") (result i32)'
    " (global.set $n (i32.add (global.get $n) (i32.const 1))) (global.get $n))",
    '(func (export "next") (result u32) (canon lift (core func $i "f")))',
)


async def test_variables_only_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The llama.cpp agent hands every tool its whole environment (systems.md WA-10)."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    given = {"API_KEY": "k", "OTHER": "o"}
    without = await wasm.opened(tmp_path, VARIABLES, name="a")
    named = await wasm.opened(tmp_path, VARIABLES, "permissions: {environment: {allow: [{key: API_KEY}]}}", name="b")
    arguments = await wasm.opened(tmp_path, ARGUMENTS, name="c")
    async with wasm.toolbox(tmp_path, without, named, arguments, environment=given) as box:
        found = [(await box.ask(f"{name}_count", {})).text for name in ("a", "b", "c")]
    assert found == ["0", "1", "0"]


async def test_folders_only_by_name(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    folders = (FolderRule(host=str(data), mode="ro"),)
    without = await wasm.opened(tmp_path, FOLDERS, name="a")
    named = await wasm.opened(
        tmp_path, FOLDERS, "permissions: {storage: {allow: [{uri: 'fs:///workspace', access: [read]}]}}", name="b"
    )
    async with wasm.toolbox(tmp_path, without, named, folders=folders) as box:
        found = [(await box.ask(f"{name}_count", {})).text for name in ("a", "b")]
    assert found == ["0", "1"]


async def test_nothing_stays_from_one_call_to_the_next(tmp_path: Path) -> None:
    component = await wasm.opened(tmp_path, STATE)
    async with wasm.toolbox(tmp_path, component) as box:
        assert [(await box.ask("tool_next", {})).text for _ in range(3)] == ["1", "1", "1"]


async def test_the_bots_commands_cannot_look_into_the_process(tmp_path: Path) -> None:
    component = await wasm.opened(tmp_path, STATE)
    find = "for p in /proc/[0-9]*; do grep -qs stockade.plugins.wasm $p/cmdline && cat $p/environ $p/maps; done"
    async with wasm.sandbox_for(tmp_path, component) as (sandbox, policy):
        async with WasmToolbox((component,), sandbox, policy) as box:
            assert (await box.ask("tool_next", {})).text == "1"
            looked, said = await sandbox.run(f"{find} 2>/tmp/said"), await sandbox.run("cat /tmp/said")
    assert looked.output == b""
    assert b"Permission denied" in said.output
