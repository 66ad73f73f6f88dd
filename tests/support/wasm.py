"""Components for tests, written by hand in WebAssembly text: no toolchain, and as hostile as need be."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from wasmtime import wat2wasm

from stockade.core.ports import Sandbox
from stockade.plugins.wasm.component import Component
from stockade.plugins.wasm.prepare import prepared
from stockade.plugins.wasm.toolbox import WasmToolbox, with_tool
from stockade.runtime.sandboxes import own_sandbox, prepare_sandbox
from stockade_sandbox.policy import FolderRule, Network, Policy

ECHO = Path(__file__).parents[2] / "examples/wasm/echo-c/echo.wasm"
_REALLOC = """
    (global $next (mut i32) (i32.const 4096))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
      (global.set $next (i32.add (local.get $at) (local.get 3)))
      (local.get $at))"""
_LIFT = '(memory (core memory $i "memory")) (realloc (core func $i "realloc"))'


def wasm(text: str) -> bytes:
    return bytes(wat2wasm(text))


def component_of(core: str, functions: str, pages: int = 1, types: str = "") -> bytes:
    """A component of one core module; `functions` are its lifted exports, with $LIFT for memory and allocation."""
    return wasm(
        f"""(component
  {types}
  (core module $m (memory (export "memory") {pages}) {_REALLOC} {core})
  (core instance $i (instantiate $m))
  {functions.replace("$LIFT", _LIFT)})"""
    )


Piece = tuple[str, str, str]
"""(core function, lifted export, types) of one function of a component."""


def identity(name: str, type_text: str, flat: str, stores: str, types: str = "") -> Piece:
    """`NAME: func(v: TYPE) -> TYPE`, giving back what it gets; `stores` lay the flat values out at 1024."""
    core = f'(func (export "c-{name}") (param {flat}) (result i32) {stores} (i32.const 1024))'
    return core, _lifted(name, type_text, "$LIFT"), types


def direct(name: str, type_text: str, flat: str, types: str = "") -> Piece:
    """The same for a type of one flat value."""
    core = f'(func (export "c-{name}") (param {flat}) (result {flat}) (local.get 0))'
    return core, _lifted(name, type_text, ""), types


def _lifted(name: str, type_text: str, how: str) -> str:
    canon = f'(canon lift (core func $i "c-{name}") {how})'
    return f'(func (export "{name}") (param "v" {type_text}) (result {type_text}) {canon})'


def together(pieces: Iterable[Piece]) -> bytes:
    """One component of all of them."""
    cores, lifted, types = zip(*pieces, strict=True)
    return component_of(" ".join(cores), " ".join(lifted), types=" ".join(types))


HOSTILE = component_of(
    """
    (func (export "spin") (loop (br 0)))
    (func $deep (export "deep") (param i32) (result i32)
      (i32.add (call $deep (i32.add (local.get 0) (i32.const 1))) (i32.const 1)))
    (func (export "crash") unreachable)
    (func (export "grow") (result i32) (local $got i32)
      (loop (local.set $got (memory.grow (i32.const 256))) (br_if 0 (i32.ne (local.get $got) (i32.const -1))))
      (memory.size))
    (func (export "huge") (result i32)
      (i32.store (i32.const 1024) (i32.const 65536)) (i32.store (i32.const 1028) (i32.const 6000000)) (i32.const 1024))
    (data (i32.const 16) "\\ff\\fe\\80")
    (func (export "bad-text") (result i32)
      (i32.store (i32.const 1024) (i32.const 16)) (i32.store (i32.const 1028) (i32.const 3)) (i32.const 1024))
    (func (export "outside") (result i32)
      (i32.store (i32.const 1024) (i32.const -16)) (i32.store (i32.const 1028) (i32.const 64)) (i32.const 1024))
    (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
    """,
    """
    (func (export "spin") (canon lift (core func $i "spin")))
    (func (export "deep") (param "n" u32) (result u32) (canon lift (core func $i "deep")))
    (func (export "crash") (canon lift (core func $i "crash")))
    (func (export "grow") (result u32) (canon lift (core func $i "grow")))
    (func (export "huge") (result string) (canon lift (core func $i "huge") $LIFT))
    (func (export "bad-text") (result string) (canon lift (core func $i "bad-text") $LIFT))
    (func (export "outside") (result string) (canon lift (core func $i "outside") $LIFT))
    (func (export "add") (param "a" u32) (param "b" u32) (result u32) (canon lift (core func $i "add")))
    (func (export "shell") (canon lift (core func $i "crash")))
    """,
    pages=100,
)

SLEEPER = wasm("""(component
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $p (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $p))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer 1 $pollable (type $pp))
    (export "pollable" (type $q (eq $pp)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $q))))))
  (core func $subscribe (canon lower (func $clock "subscribe-duration")))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core module $m
    (import "w" "subscribe" (func $subscribe (param i64) (result i32)))
    (import "w" "block" (func $block (param i32)))
    (func (export "sleep") (param i64) (call $block (call $subscribe (local.get 0)))))
  (core instance $i (instantiate $m (with "w" (instance
    (export "subscribe" (func $subscribe)) (export "block" (func $block))))))
  (func (export "sleep") (param "nanoseconds" u64) (canon lift (core func $i "sleep"))))""")


async def opened(folder: Path, data: bytes, policy: str | None = None, name: str = "tool") -> Component:
    """The component in a file of `folder`, looked at, with this policy (YAML) beside it."""
    path = folder / f"{name}.wasm"
    path.write_bytes(data)
    if policy is not None:
        path.with_suffix(".policy.yaml").write_text(policy)
    return await prepared(path, own_sandbox)


@asynccontextmanager
async def sandbox_for(
    base: Path,
    *components: Component,
    folders: tuple[FolderRule, ...] = (),
    network: Network | None = None,
    environment: dict[str, str] | None = None,
) -> AsyncIterator[tuple[Sandbox, Policy]]:
    """A sandbox that these components can be called in."""
    policy = Policy(folders=folders, network=network or Network(), environment=environment or {})
    for component in components:
        policy = with_tool(component, policy)
    async with await prepare_sandbox(policy, "bubblewrap", base / "sandbox") as sandbox:
        yield sandbox, policy


@asynccontextmanager
async def toolbox(
    base: Path,
    *components: Component,
    folders: tuple[FolderRule, ...] = (),
    environment: dict[str, str] | None = None,
) -> AsyncIterator[WasmToolbox]:
    async with sandbox_for(base, *components, folders=folders, environment=environment) as (sandbox, policy):
        async with WasmToolbox(components, sandbox, policy) as box:
            yield box
