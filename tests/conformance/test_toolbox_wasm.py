"""Components against the toolbox suite, in a real sandbox."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stockade.plugins.wasm.toolbox import WasmToolbox
from stockade.testing.conformance.toolbox import Call, ToolboxConformance
from tests.support import wasm


class TestWasm(ToolboxConformance):
    @pytest.fixture
    async def toolbox(self, tmp_path: Path) -> AsyncIterator[WasmToolbox]:
        echo = await wasm.opened(tmp_path, wasm.ECHO.read_bytes(), name="echo")
        add = await wasm.opened(tmp_path, _ADD, name="add")
        async with wasm.sandbox_for(tmp_path, echo, add) as (sandbox, policy):
            yield WasmToolbox((echo, add), sandbox, policy)

    @pytest.fixture
    def good(self) -> Call:
        return "Echo", {"value": "Something to echo"}, "Something to echo"


_ADD = wasm.component_of(
    '(func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))',
    '(func (export "add") (param "a" u32) (param "b" u32) (result u32) (canon lift (core func $i "add")))',
)
