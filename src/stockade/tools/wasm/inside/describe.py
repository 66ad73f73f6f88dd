"""What a component exports and asks for, as JSON. Nothing of it is run but `get-metadata`, under limits."""

from collections.abc import Iterator, Mapping
from typing import Any

from wasmtime import Engine, WasmtimeError
from wasmtime import component as wc

from stockade.tools.wasm.inside.engine import HTTP, Printed, function_at, linker, store
from stockade.tools.wasm.inside.schema import Foreign, of_function, of_result
from stockade.tools.wasm.inside.values import lift

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
            functions.append({"path": path, "parameters": of_function(function), "result": of_result(function.result)})
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
        live = linker(made_for, nothing).instantiate(fresh, component)
        function = function_at(live, fresh, ["get-metadata"])
        if function is None or (kind := function.type(fresh).result) is None:
            return {"error": "get-metadata is no function with a result"}
        found = lift(kind, function(fresh))
    except (WasmtimeError, UnicodeDecodeError, TypeError) as error:
        return {"error": f"get-metadata: {str(error).strip().splitlines()[0]}"}
    return found if isinstance(found, dict) else {"error": "get-metadata returned no record"}


def _nothing(*_: object) -> str:
    return "not while it is looked at"
