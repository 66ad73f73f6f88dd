"""Values of every type through a real component and back, and the schemas they come with."""

import json
from pathlib import Path
from typing import Any

import pytest

from stockade.plugins.wasm.component import Component
from tests.support import wasm

pytestmark = pytest.mark.anyio
_WORD = "(i32.store (i32.const 1024) (local.get 0))"
_TWO = f"{_WORD} (i32.store (i32.const 1028) (local.get 1))"
_BYTE_WORD = "(i32.store8 (i32.const 1024) (local.get 0)) (i32.store (i32.const 1028) (local.get 1))"
_THREE = f"{_BYTE_WORD} (i32.store (i32.const 1032) (local.get 2))"
_RECORD = '(type $r\' (record (field "x" u32) (field "y" s8))) (export $r "r" (type $r\'))'
_ENUM = '(type $e\' (enum "red" "green")) (export $e "e" (type $e\'))'
_FLAGS = '(type $f\' (flags "read" "write" "run")) (export $f "fl" (type $f\'))'
_VARIANT = '(type $v\' (variant (case "n" u32) (case "none") (case "t" string))) (export $v "v" (type $v\'))'
CASES: dict[str, tuple[wasm.Piece, list[Any]]] = {
    "u8": (wasm.direct("t-u8", "u8", "i32"), [0, 255]),
    "s64": (wasm.direct("t-s64", "s64", "i64"), [-(2**63), 2**63 - 1]),
    "u64": (wasm.direct("t-u64", "u64", "i64"), [2**64 - 1]),
    "f64": (wasm.direct("t-f64", "f64", "f64"), [1.5, 1e308, -0.0]),
    "bool": (wasm.direct("t-bool", "bool", "i32"), [True, False]),
    "char": (wasm.direct("t-char", "char", "i32"), ["a", "\U0001f600"]),
    "enum": (wasm.direct("t-enum", "$e", "i32", _ENUM), ["red", "green"]),
    "flags": (wasm.direct("t-flags", "$f", "i32", _FLAGS), [[], ["read", "run"]]),
    "string": (wasm.identity("t-string", "string", "i32 i32", _TWO), ["", "hé\n\0", "x" * 5000]),
    "list": (wasm.identity("t-list", "(list u32)", "i32 i32", _TWO), [[], [1, 2, 2**32 - 1]]),
    "bytes": (wasm.identity("t-bytes", "(list u8)", "i32 i32", _TWO), ["", "AAH/"]),
    "tuple": (wasm.identity("t-tuple", "(tuple u32 u32)", "i32 i32", _TWO), [[1, 2]]),
    "record": (
        wasm.identity("t-record", "$r", "i32 i32", f"{_WORD} (i32.store8 (i32.const 1028) (local.get 1))", _RECORD),
        [{"x": 7, "y": -128}],
    ),
    "option": (wasm.identity("t-option", "(option u32)", "i32 i32", _BYTE_WORD), [None, 5]),
    "nested": (
        wasm.identity(
            "t-nested",
            "(option (option u32))",
            "i32 i32 i32",
            "(i32.store8 (i32.const 1024) (local.get 0)) (i32.store8 (i32.const 1028) (local.get 1))"
            "(i32.store (i32.const 1032) (local.get 2))",
        ),
        [None, {"some": None}, {"some": 3}],
    ),
    "variant": (
        wasm.identity("t-variant", "$v", "i32 i32 i32", _THREE, _VARIANT),
        [{"tag": "n", "value": 3}, {"tag": "none"}, {"tag": "t", "value": "text"}],
    ),
}
WRONG: dict[str, list[Any]] = {
    "u8": [-1, 256, 1.5, "1 ", "256", "0x1", None, True, [], 10**30],
    "u64": [2**64, -1],
    "s64": [2**63, -(2**63) - 1],
    "f64": ["1e3", "nan", True, 10**400],
    "bool": [1, "yes", "True"],
    "char": ["", "ab", 1],
    "enum": ["blue", None, 0],
    "flags": ["read", ["fly"], [1]],
    "string": [1, "\ud800", None],
    "list": [[-1], {}, "x", [[1]]],
    "bytes": ["not base64!", [1], "é"],
    "tuple": [[1], [1, 2, 3], {}],
    "record": [{"x": 1}, {"x": 1, "y": 200}, {"x": 1, "y": 1, "z": 1}, []],
    "option": ["x", -1],
    "nested": [3, {"none": 1}],
    "variant": ["n", {"tag": "q"}, {"tag": "n"}, {"tag": "none", "value": 1}, {"tag": "n", "value": 1, "x": 2}],
}


async def _component(tmp_path: Path) -> Component:
    return await wasm.opened(tmp_path, wasm.together(piece for piece, _ in CASES.values()), name="all")


async def test_values_come_back_as_they_went_and_others_are_refused(tmp_path: Path) -> None:
    async with wasm.toolbox(tmp_path, await _component(tmp_path)) as box:
        for kind, (_, values) in CASES.items():
            for value in values:
                reply = await box.ask(f"all_t_{kind}", {"v": value})
                assert reply.status != "error", (kind, value, reply)
                text = value if isinstance(value, str) else None
                assert reply.text == text if text is not None else _same(reply.text, value), (kind, value, reply)
            for value in WRONG[kind]:
                reply = await box.ask(f"all_t_{kind}", {"v": value})
                assert (reply.status, reply.kind) == ("error", "arguments"), (kind, value, reply)
                assert "v" in reply.text


def _same(text: str, value: Any) -> bool:
    return bool(json.loads(text) == value)


async def test_numbers_and_booleans_that_came_as_text(tmp_path: Path) -> None:
    async with wasm.toolbox(tmp_path, await _component(tmp_path)) as box:
        for kind, value, expected in (
            ("u8", "255", "255"),
            ("s64", "-5", "-5"),
            ("f64", "2.5", "2.5"),
            ("bool", "true", "true"),
            ("option", "7", "7"),
        ):
            assert (await box.ask(f"all_t_{kind}", {"v": value})).text == expected


async def test_schemas_have_the_bounds_of_the_types(tmp_path: Path) -> None:
    found = {}
    tools = {tool.spec.name: tool for tool in (await _component(tmp_path)).tools}
    for kind in ("u8", "enum", "flags", "option", "record", "variant", "bytes", "tuple"):
        parameters = tools[f"all_t_{kind}"].spec.parameters
        found[kind] = parameters["properties"]["v"]
        assert parameters.get("required", []) == ([] if kind == "option" else ["v"])
    assert found["u8"] == {"type": "integer", "minimum": 0, "maximum": 255}
    assert found["enum"] == {"type": "string", "enum": ["red", "green"]}
    assert found["flags"]["items"]["enum"] == ["read", "write", "run"]
    assert found["option"]["anyOf"][1] == {"type": "null"}
    assert found["record"]["required"] == ["x", "y"]
    assert found["record"]["additionalProperties"] is False
    assert [one["properties"]["tag"]["const"] for one in found["variant"]["oneOf"]] == ["n", "none", "t"]
    assert found["bytes"] == {"type": "string", "contentEncoding": "base64"}
    assert (found["tuple"]["minItems"], found["tuple"]["maxItems"]) == (2, 2)


async def test_an_error_of_a_result_is_a_tool_error_and_a_success_is_none(tmp_path: Path) -> None:
    stores = f"{_BYTE_WORD} (i32.store (i32.const 1032) (local.get 2))"
    core = f'(func (export "f") (param i32 i32 i32) (result i32) {stores} (i32.const 1024))'
    lifted = (
        '(func (export "f") (param "v" (result u32 (error string))) (result (result u32 (error string)))'
        ' (canon lift (core func $i "f") $LIFT))'
    )
    component = await wasm.opened(tmp_path, wasm.component_of(core, lifted))
    async with wasm.toolbox(tmp_path, component) as box:
        good = await box.ask("tool_f", {"v": {"tag": "ok", "value": 7}})
        bad = await box.ask("tool_f", {"v": {"tag": "err", "value": "no such row"}})
    assert (good.status, good.text) == ("data", "7")
    assert (bad.status, bad.text, bad.kind) == ("error", "no such row", None)
