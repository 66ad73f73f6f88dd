"""Functions as tools: the schema, what comes back, and what goes wrong in them."""

import functools
import threading
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel, Field

from stockade import tool
from stockade.core.actions import ToolResult
from stockade.core.errors import ActionFailed, UsageError
from stockade.core.ports import Toolbox
from stockade.testing.conformance.toolbox import Call, ToolboxConformance
from stockade.tools.function import FunctionTool


class Place(BaseModel):
    city: str
    zip: int = 0


@dataclass
class Weather:
    degrees: float
    words: str


@tool
def ticket(number: int, style: Literal["short", "long"] = "short", _raw: bool = False) -> str:
    """The text of a ticket.

    Its number is on its label.
    """
    return f"ticket {number} {style} {_raw}"


@tool
async def weather(place: Place, days: Annotated[int, Field(description="how far ahead", le=5)]) -> Weather:
    await anyio.lowlevel.checkpoint()
    return Weather(21.5, f"mild in {place.city}")


class TestPlainFunction(ToolboxConformance):
    @pytest.fixture
    def toolbox(self) -> Toolbox:
        return ticket

    @pytest.fixture
    def good(self) -> Call:
        return "ticket", {"number": 7}, "ticket 7 short False"


class TestCoroutineFunction(ToolboxConformance):
    @pytest.fixture
    def toolbox(self) -> Toolbox:
        return weather

    @pytest.fixture
    def good(self) -> Call:
        return "weather", {"place": {"city": "Bergen"}, "days": 2}, '{"degrees":21.5,"words":"mild in Bergen"}'


def called(function: Any, timeout_s: float | None = None, **arguments: Any) -> ToolResult:
    return anyio.run(FunctionTool(function).do, arguments, timeout_s)


def test_its_schema_is_that_of_its_hints_and_its_docstring() -> None:
    assert ticket.spec.description == "The text of a ticket.\n\nIts number is on its label."
    assert ticket.spec.parameters == {
        "type": "object",
        "properties": {
            "number": {"type": "integer"},
            "style": {"type": "string", "enum": ["short", "long"], "default": "short"},
            "_raw": {"type": "boolean", "default": False},
        },
        "required": ["number"],
        "additionalProperties": False,
    }
    assert weather.spec.properties["days"] == {"type": "integer", "description": "how far ahead", "maximum": 5}
    assert ticket.spec.in_process


def test_it_is_still_the_function() -> None:
    assert (ticket(3), ticket.spec.name, anyio.run(weather, Place(city="Oslo"), 1).degrees) == (
        "ticket 3 short False", "ticket", 21.5)  # fmt: skip


def test_what_it_returns_is_a_text_or_json_or_a_result() -> None:
    assert called(lambda_named("a", lambda: [1, {"b": None}])).text == '[1,{"b":null}]'
    assert called(lambda_named("a", lambda: None)).text == "null"
    assert called(lambda_named("a", lambda: "a\ud800")).text == "a\\ud800"
    assert called(lambda_named("a", lambda: ToolResult(status="data", text="x"))).status == "data"
    assert called(lambda_named("a", object)).text.startswith("it returned what JSON has not")


def lambda_named(name: str, function: Any) -> Any:
    @functools.wraps(function, assigned=())
    def named() -> Any:
        return function()

    named.__name__ = name
    del named.__wrapped__
    return named


def test_what_it_raises_is_told_to_the_model() -> None:
    def broken(kind: str) -> str:
        if kind == "mine":
            raise ActionFailed("there is no such ticket")
        raise ValueError("bad \udc80 bytes")

    assert called(broken, kind="mine") == ToolResult(status="error", text="there is no such ticket")
    assert called(broken, kind="other") == ToolResult(status="error", text="ValueError: bad \\udc80 bytes")


def test_a_function_that_takes_too_long_is_left_alone() -> None:
    end = threading.Event()

    def slow() -> str:
        return str(end.wait(60))

    result = called(slow, 0.05)
    end.set()
    assert result == ToolResult(status="error", text="slow took longer than 0.05 s")


def test_what_no_model_can_call_is_refused() -> None:
    def many(*numbers: int) -> int:
        return sum(numbers)

    def odd(file: threading.Event) -> None: ...

    def no(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    for function, words in (
        (many, "'many' has parameters without a name"),
        (lambda: 1, "'<lambda>' needs another name"),
        (odd, "'odd' cannot be offered to a model"),
        (no, "'no' cannot be offered to a model"),
    ):
        with pytest.raises(UsageError, match=words):
            tool(function)
