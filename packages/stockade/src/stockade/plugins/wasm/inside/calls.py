"""The engine under limits, one call in a fresh instance, and what a component exports and asks for, as JSON.

Looking at a component runs nothing of it but `get-metadata`, under limits.
"""

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from wasmtime import Config, Engine, ExitTrap, Store, WasiConfig, WasmtimeError
from wasmtime import component as wc

from stockade.plugins.wasm.inside.values import (
    Foreign,
    Wrong,
    arguments,
    lower_fields,
    object_schema,
    result,
    spelled,
)

HTTP = "stockade:tool/http"
"""Our interface for the network; what does it is in fetch.py."""
GUEST_OUTPUT_BYTES = 4096
"""Of what a component prints."""


@cache
def engine(fuel: bool, stack_bytes: int) -> Engine:
    """Compiled code belongs to an engine with or without fuel; the stack's bound is of the engine too."""
    config = Config()
    config.wasm_component_model = True
    config.consume_fuel = fuel
    config.max_wasm_stack = stack_bytes
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
    fresh.set_wasi_http()  # of use only where the linker gives it
    return fresh


def linker(made_for: Engine, component: wc.Component, functions: dict[str, dict[str, Callable[..., Any]]]) -> wc.Linker:
    """WASI without sockets, with its HTTP where that is imported, and our own interfaces: {interface: {function: what
    does it}}.
    """
    linked = wc.Linker(made_for)
    linked.add_wasip2()
    if any(name.startswith("wasi:http/") for name in component.type.imports(made_for)):
        linked.add_wasi_http()  # its requests go out as those of any program here: whom the run may ask, and on record
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


_TRAPS = (
    ("call stack exhausted", "stack", "the tool's calls are nested too deep: its stack is full"),
    ("all fuel consumed", "fuel", "the tool has used up its fuel"),
    ("exceeds memory limits", "memory", "the tool needs more memory than it may have"),
    ("`unreachable` instruction", "trap", "the tool crashed"),
)
"""wasmtime's own words: the errors of components carry no code in its Python classes."""


class Ended(Exception):
    """The tool did not return. `kind` says how: trap, stack, fuel, memory, exit."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Loaded:
    """A component and what its calls have in common: its imports, linked once."""

    def __init__(self, made_for: Engine, component: wc.Component) -> None:
        self.engine, self.component = made_for, component
        self._fetch: Callable[[object, object], Any] | None = None
        names = [name for name in component.type.imports(made_for) if name.startswith(HTTP + "@")]
        # An HTTP client is a third of what starting this process costs; most components have no use for one.
        self._http = importlib.import_module("stockade.plugins.wasm.inside.fetch") if names else None
        self._linker = linker(made_for, component, {name: {"fetch": self._asked} for name in names})

    def _asked(self, store: object, request: object) -> Any:
        assert self._fetch is not None
        return self._fetch(store, request)

    def instance(self, request: dict[str, Any], printed: Printed) -> tuple[Store, wc.Instance]:
        """A fresh one, with what this request grants."""
        limits, grants = request["limits"], request["grants"]
        fresh = store(self.engine, limits, grants, printed)
        if self._http is not None:
            hosts, seconds = grants.get("hosts", ()), float(limits["timeout_s"])
            self._fetch = self._http.Fetch(hosts, int(limits["http_bytes"]), seconds)
        return fresh, self._linker.instantiate(fresh, self.component)


def call(loaded: Loaded, request: dict[str, Any], printed: Printed) -> tuple[str, str]:
    """(text, status) of the result. Raises Wrong for arguments that do not fit, Ended when it did not return."""
    try:
        fresh, live = loaded.instance(request, printed)
        function = function_at(live, fresh, request["path"])
        if function is None:
            raise Ended("missing", "the component does not have this function")
        if request.get("strings"):
            return _in_tool_world(function, fresh, request["arguments"])
        return _typed(function, fresh, request["arguments"])
    except UnicodeDecodeError:
        raise Ended("text", "the tool returned text that is not UTF-8") from None
    except WasmtimeError as error:
        raise _ended(error, printed.text, request["limits"]) from None
    except MemoryError:
        raise Ended("memory", "the result does not fit into memory") from None


def _typed(function: wc.Func, fresh: Store, given: dict[str, Any]) -> tuple[str, str]:
    kind = function.type(fresh)
    value, gives = function(fresh, *lower_fields(arguments(kind), given).values()), result(kind.result)
    if gives is None:
        return "", "success"
    found = gives.lift(value)
    if not isinstance(kind.result, wc.ResultType):
        return _told(spelled(found))
    text = spelled(found["value"]) if "value" in found else ""
    return _told(text) if found["tag"] == "ok" else (text or "the tool failed and said nothing", "error")


def _in_tool_world(function: wc.Func, fresh: Store, given: dict[str, Any]) -> tuple[str, str]:
    """`execute` of llama-cpp:tool: pairs of strings in, tool-result out."""
    pairs = [(name, _as_string(value)) for name, value in given.items() if value is not None]
    try:
        gives = result(function.type(fresh).result)
        found = None if gives is None else gives.lift(function(fresh, pairs))
    except (TypeError, Foreign):
        found = None
    if not isinstance(found, dict) or not {"success", "data", "error"} <= set(found):
        raise Ended("type", "execute has not the type of the tool world")
    if not found["success"]:
        return str(found["error"] or found["data"] or "Unknown error"), "error"
    return _told(str(found["data"]))


def _as_string(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Wrong("an argument holds half a surrogate pair, which is no text") from None
    return text


def _told(text: str) -> tuple[str, str]:
    return text, "data" if text else "success"


def _ended(error: Exception, printed: str, limits: Mapping[str, Any]) -> Ended:
    said = f"; it printed: {printed[-400:]}" if printed else ""
    if isinstance(error, ExitTrap):
        return Ended("exit", f"the tool ended itself with status {error.code}{said}")
    words = str(error)
    for known, kind, message in _TRAPS:
        if known in words:
            return Ended(kind, message + _limit(kind, limits) + said)
    last = [line.split(": ", 1)[-1].strip() for line in words.splitlines() if line.strip()]
    return Ended("trap", f"the tool failed: {(last or ['no reason given'])[-1][:300]}{said}")


def _limit(kind: str, limits: Mapping[str, Any]) -> str:
    """The one that ended a call, with its value."""
    sizes = {"memory": "memory_bytes", "stack": "stack_bytes"}
    if kind in sizes:
        return f" ({kind} limit {int(limits[sizes[kind]]) / 2**20:g} MiB)"
    return f" (fuel limit {int(limits['fuel']):,})" if kind == "fuel" else ""


_INTERNAL = ("wasi:", "cabi_")
_RUNTIME = {"init", "exports"}
"""What componentize-py and jco export for themselves."""
MAX_FUNCTIONS = 128


def describe(made_for: Engine, component: wc.Component, limits: dict[str, Any]) -> dict[str, Any]:
    """functions [{path, parameters, result}], skipped [{path, reason}], imports [name], metadata or null."""
    exports = component.type.exports(made_for)
    functions: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    for path, function in _functions(exports, made_for):
        if len(functions) >= MAX_FUNCTIONS:
            skipped.append({"path": path, "reason": f"more than {MAX_FUNCTIONS} functions"})
            continue
        try:
            takes, gives = object_schema(arguments(function)), result(function.result)
            functions.append({"path": path, "parameters": takes, "result": gives and gives.schema})
        except Foreign as error:
            skipped.append({"path": path, "reason": f"its type holds {error}"})
    imports = [name for name, item in component.type.imports(made_for).items() if _asks(item, made_for)]
    metadata = _metadata(made_for, component, limits) if "get-metadata" in exports else None
    return {"functions": functions, "skipped": skipped, "imports": imports, "metadata": metadata}


def _functions(exports: Mapping[str, object], made_for: Engine) -> Iterator[tuple[list[str], wc.FuncType]]:
    """Those for a model: not what WASI or a language's run-time exports, nor the methods of resources."""
    for name, item in exports.items():
        kind = getattr(item, "ty", item)
        if name.startswith(_INTERNAL) or name in _RUNTIME:
            continue
        if isinstance(kind, wc.FuncType):
            yield [name], kind
        elif isinstance(kind, wc.ComponentInstanceType):
            for inner, member in kind.exports(made_for).items():
                if isinstance(found := getattr(member, "ty", member), wc.FuncType):
                    yield [name, inner], found


def _asks(item: Any, made_for: Engine) -> bool:
    """Whether an import can do anything; an interface of types only cannot."""
    kind = getattr(item, "ty", item)
    if isinstance(kind, wc.ComponentInstanceType):
        members = [getattr(member, "ty", member) for member in kind.exports(made_for).values()]
        return any(isinstance(member, wc.FuncType) for member in members)
    return True


def _metadata(made_for: Engine, component: wc.Component, limits: dict[str, Any]) -> dict[str, Any]:
    """What `get-metadata` of the tool world says; {"error": why} when it does not."""
    printed = Printed()
    fresh = store(made_for, limits, {}, printed)
    nothing = {name: {"fetch": _nothing} for name in component.type.imports(made_for) if name.startswith(HTTP)}
    try:
        live = linker(made_for, component, nothing).instantiate(fresh, component)
        function = function_at(live, fresh, ["get-metadata"])
        if function is None or (gives := result(function.type(fresh).result)) is None:
            return {"error": "get-metadata is no function with a result"}
        found = gives.lift(function(fresh))
    except (WasmtimeError, UnicodeDecodeError, TypeError, Foreign, Wrong) as error:
        return {"error": f"get-metadata: {str(error).strip().splitlines()[0]}"}
    return found if isinstance(found, dict) else {"error": "get-metadata returned no record"}


def _nothing(*_: object) -> str:
    return "not while it is looked at"
