"""The engine under limits: what compiled code is made with and what an instance is held to."""

from collections.abc import Callable
from typing import Any

from wasmtime import Config, Engine, Store, WasiConfig
from wasmtime import component as wc

HTTP = "stockade:tool/http"
"""Our interface for the network; what does it is in fetch.py."""
GUEST_OUTPUT_BYTES = 4096
"""Of what a component prints, for the message when it fails."""


def engine(limits: dict[str, Any]) -> Engine:
    """Compiled code belongs to an engine with or without fuel; the stack's bound is of the engine too."""
    config = Config()
    config.wasm_component_model = True
    config.consume_fuel = bool(limits.get("fuel"))
    config.max_wasm_stack = int(limits["stack_bytes"])
    return Engine(config)


class Printed:
    """The beginning of what the component printed."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def take(self, data: bytes) -> int:
        self._kept += data[: max(0, GUEST_OUTPUT_BYTES - len(self._kept))]
        return len(data)

    @property
    def text(self) -> str:
        return self._kept.decode(errors="replace").strip()


def store(made_for: Engine, limits: dict[str, Any], grants: dict[str, Any], printed: Printed) -> Store:
    """A fresh store: nothing of the machine in it but what `grants` names.

    `grants`: folders [[path here, path for the component, writable]], environment {name: value}.
    """
    fresh = Store(made_for)
    fresh.set_limits(
        memory_size=int(limits["memory_bytes"]), table_elements=1_000_000, instances=1000, tables=1000, memories=100
    )
    if limits.get("fuel"):
        fresh.set_fuel(int(limits["fuel"]))
    wasi = WasiConfig()
    wasi.env = list(grants.get("environment", {}).items())
    for path, inside, writable in grants.get("folders", ()):
        wasi.preopen_dir(path, inside, bool(writable))
    wasi.stdout_custom = printed.take
    wasi.stderr_custom = printed.take
    fresh.set_wasi(wasi)
    return fresh


def linker(made_for: Engine, functions: dict[str, dict[str, Callable[..., Any]]]) -> wc.Linker:
    """WASI without network, and our own interfaces: {interface: {function: what does it}}."""
    linked = wc.Linker(made_for)
    linked.add_wasip2()
    for interface, members in functions.items():
        with linked.root() as root, root.add_instance(interface) as instance:
            for name, function in members.items():
                instance.add_func(name, function)
    return linked


def function_at(live: wc.Instance, fresh: Store, path: list[str]) -> wc.Func | None:
    """The exported function at `path`: its name, or its interface's name and its own."""
    index: Any = None
    for name in path[:-1]:
        index = live.get_export_index(fresh, name, index)
        if index is None:
            return None
    found = live.get_export_index(fresh, path[-1], index)
    return None if found is None else live.get_func(fresh, found)
