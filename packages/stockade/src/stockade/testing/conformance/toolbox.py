"""What every Toolbox must do. A test module subclasses this and gives `toolbox` (not entered) as a fixture, and `good`.

`good` is a call that succeeds: (name, arguments, a text that its result holds).
"""

import json
from typing import Any

import anyio
import pytest

from stockade.core.actions import BUILT_IN_TOOLS, ToolResult
from stockade.core.ports import Toolbox

Call = tuple[str, dict[str, Any], str]
PATIENCE_S = 60.0
HOSTILE: tuple[Any, ...] = (
    None,
    7,
    -(2**70),
    1e308,
    True,
    "",
    "\x00",
    "\ud800",
    "../../../etc/passwd",
    "$(touch /tmp/owned); `id`",
    "x" * 200_000,
    [],
    [[[[]]]],
    {},
    {"a": {"b": None}},
)


class ToolboxConformance:
    """Every toolbox passes all of these."""

    @pytest.mark.anyio
    async def test_a_good_call_gives_its_result(self, toolbox: Toolbox, good: Call) -> None:
        name, arguments, expected = good
        async with toolbox as box:
            result = await box.call(name, arguments, PATIENCE_S)
        assert result.status != "error", result.text
        assert expected in result.text

    @pytest.mark.anyio
    async def test_specs_can_be_told_from_each_other_and_sent_to_a_model(self, toolbox: Toolbox) -> None:
        async with toolbox as box:
            names = [spec.name for spec in box.specs]
            assert len(set(names)) == len(names) > 0
            assert not set(names) & set(BUILT_IN_TOOLS)
            for spec in box.specs:
                assert spec.parameters.get("type") == "object"
                assert set(spec.required) <= set(spec.properties)
                assert json.loads(json.dumps(spec.parameters)) == spec.parameters
                assert spec.description.isprintable() or spec.description.replace("\n", " ").isprintable()
            assert box.specs == box.specs

    @pytest.mark.anyio
    async def test_an_unknown_name_is_a_mistake_of_the_caller(self, toolbox: Toolbox) -> None:
        async with toolbox as box:
            with pytest.raises(KeyError):
                await box.call("no_such_tool", {}, PATIENCE_S)

    @pytest.mark.anyio
    async def test_hostile_arguments_are_an_error_or_a_result_and_the_tool_goes_on(
        self, toolbox: Toolbox, good: Call
    ) -> None:
        async with toolbox as box:
            for spec in box.specs:
                for value in HOSTILE:
                    for arguments in (dict.fromkeys(spec.properties, value), {"no_such_argument": value}):
                        result = await box.call(spec.name, arguments, PATIENCE_S)
                        assert isinstance(result, ToolResult)
            name, arguments, expected = good
            assert expected in (await box.call(name, arguments, PATIENCE_S)).text

    @pytest.mark.anyio
    async def test_missing_arguments_are_named(self, toolbox: Toolbox) -> None:
        async with toolbox as box:
            for spec in box.specs:
                if spec.required:
                    result = await box.call(spec.name, {}, PATIENCE_S)
                    assert result.status == "error"
                    assert any(name in result.text for name in spec.required), result.text

    @pytest.mark.anyio
    async def test_a_cancelled_call_leaves_the_toolbox_usable(self, toolbox: Toolbox, good: Call) -> None:
        name, arguments, expected = good
        async with toolbox as box:
            with anyio.move_on_after(0.001):
                await box.call(name, arguments, PATIENCE_S)
            assert expected in (await box.call(name, arguments, PATIENCE_S)).text

    @pytest.mark.anyio
    async def test_calls_side_by_side(self, toolbox: Toolbox, good: Call) -> None:
        name, arguments, expected = good
        results: list[ToolResult] = []

        async with toolbox as box:

            async def one() -> None:
                results.append(await box.call(name, arguments, PATIENCE_S))

            async with anyio.create_task_group() as group:
                for _ in range(4):
                    group.start_soon(one)
        assert [expected in result.text for result in results] == [True] * 4, results
