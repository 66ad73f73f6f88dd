"""One call in a fresh instance."""

import importlib
import json
from collections.abc import Callable
from typing import Any

from wasmtime import Engine, ExitTrap, Store, WasmtimeError
from wasmtime import component as wc

from stockade.tools.wasm.inside.engine import HTTP, Printed, function_at, linker, store
from stockade.tools.wasm.inside.values import Wrong, lift, lower_arguments, spelled, tagged

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
        self._http = importlib.import_module("stockade.tools.wasm.inside.fetch") if names else None
        self._linker = linker(made_for, {name: {"fetch": self._asked} for name in names})

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


def call(loaded: Loaded, request: dict[str, Any]) -> tuple[str, str]:
    """(text, status) of the result. Raises Wrong for arguments that do not fit, Ended when it did not return."""
    printed = Printed()
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
        raise _ended(error, printed.text) from None
    except MemoryError:
        raise Ended("memory", "the result does not fit into memory") from None


def _typed(function: wc.Func, fresh: Store, arguments: dict[str, Any]) -> tuple[str, str]:
    kind = function.type(fresh)
    lowered = lower_arguments(kind, arguments)
    value, result = function(fresh, *lowered), kind.result
    if isinstance(result, wc.ResultType):
        case, inner = tagged(result, {"ok": result.ok, "err": result.err}, value)
        payload = result.ok if case == "ok" else result.err
        text = spelled(payload, inner)
        return (text or "the tool failed and said nothing", "error") if case == "err" else (text, _status(text))
    text = spelled(result, value)
    return text, _status(text)


def _in_tool_world(function: wc.Func, fresh: Store, arguments: dict[str, Any]) -> tuple[str, str]:
    """`execute` of llama-cpp:tool: pairs of strings in, tool-result out."""
    kind = function.type(fresh)
    pairs = [(name, _as_string(value)) for name, value in arguments.items() if value is not None]
    if len(kind.params) != 1 or kind.result is None:
        raise Ended("type", "execute has not the type of the tool world")
    try:
        result = lift(kind.result, function(fresh, pairs))
    except TypeError:
        raise Ended("type", "execute has not the type of the tool world") from None
    if not isinstance(result, dict) or not {"success", "data", "error"} <= set(result):
        raise Ended("type", "execute has not the type of the tool world")
    if not result["success"]:
        return str(result["error"] or result["data"] or "Unknown error"), "error"
    return str(result["data"]), _status(str(result["data"]))


def _as_string(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Wrong("an argument holds half a surrogate pair, which is no text") from None
    return text


def _status(text: str) -> str:
    return "data" if text else "success"


def _ended(error: Exception, printed: str) -> Ended:
    said = f"; it printed: {printed[-400:]}" if printed else ""
    if isinstance(error, ExitTrap):
        return Ended("exit", f"the tool ended itself with status {error.code}{said}")
    words = str(error)
    for known, kind, message in _TRAPS:
        if known in words:
            return Ended(kind, message + said)
    last = [line.split(": ", 1)[-1].strip() for line in words.splitlines() if line.strip()]
    return Ended("trap", f"the tool failed: {(last or ['no reason given'])[-1][:300]}{said}")
