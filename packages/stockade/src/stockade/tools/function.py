"""A Python function as a tool. It runs in the user's process, outside the sandbox, and is marked so on record."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar

import anyio
from anyio import to_thread
from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ArgsKwargs, PydanticSerializationError, core_schema, to_json

from stockade.core.actions import ToolResult
from stockade.core.errors import ActionFailed, UsageError
from stockade.core.toolbox import OneTool, wrong_words
from stockade.core.tools import ToolSpec

P = ParamSpec("P")
R = TypeVar("R")
_NO_NAMES = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)


class FunctionTool(OneTool, Generic[P, R]):
    """Implements core.ports.Toolbox with a function; called as a function it is still that.

    UsageError for a function that a model cannot call: without a name, with `*args`, or of types that JSON has not.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self._function = function

        name = getattr(function, "__name__", type(function).__name__)
        try:
            if any(one.kind in _NO_NAMES for one in inspect.signature(function).parameters.values()):
                raise UsageError(f"the tool {name!r} has parameters without a name", "a model names each argument")
            self._arguments: TypeAdapter[tuple[tuple[Any, ...], dict[str, Any]]] = TypeAdapter(_binder(function))
            schema = self._arguments.json_schema(schema_generator=_Untitled)
            self._spec = ToolSpec(
                name=name, description=inspect.getdoc(function) or "", parameters=schema, in_process=True
            )
        except ValidationError:
            raise UsageError(f"the tool {name!r} needs another name", "letters, digits, _ and -: def NAME") from None
        except (PydanticUserError, NameError, TypeError, ValueError) as error:
            raise UsageError(f"the tool {name!r} cannot be offered to a model: {error}", "JSON has its types") from None

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    async def do(self, arguments: Mapping[str, Any], timeout_s: float | None) -> ToolResult:
        """What the function returned: a text as it is, anything else as JSON. What it raises is told to the model.

        A plain function has a thread of its own, which goes on by itself when there is no time left for it.
        """
        try:
            args, kwargs = self._arguments.validate_python(ArgsKwargs((), dict(arguments)))
        except ValidationError as error:
            return ToolResult(status="error", text=wrong_words(error))
        try:
            with anyio.fail_after(timeout_s):
                return _result(await self._called(*args, **kwargs))
        except TimeoutError as error:
            return ToolResult(status="error", text=str(error) or f"{self.spec.name} took longer than {timeout_s} s")
        except ActionFailed as error:
            return ToolResult(status="error", text=error.message)
        except Exception as error:  # noqa: BLE001 - the user's own function: the model is told, and the record has it
            return ToolResult(status="error", text=_readable(f"{type(error).__name__}: {error}"))

    async def _called(self, *args: Any, **kwargs: Any) -> Any:
        call = functools.partial(self._function, *args, **kwargs)
        if inspect.iscoroutinefunction(self._function):
            value: Any = call()
        else:
            value = await to_thread.run_sync(call, abandon_on_cancel=True)
        return await value if inspect.isawaitable(value) else value


def tool(function: Callable[P, R]) -> FunctionTool[P, R]:
    """A function that a bot may call: its name, its type hints and its docstring are what the model is told.

    It runs in your process, with your rights. Its arguments come from a model: check them.
    """
    return FunctionTool(function)


def _binder(function: Callable[..., Any]) -> Any:
    """A function of the same parameters that gives back what it was called with."""

    @functools.wraps(function)
    def bound(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, kwargs

    return bound


class _Untitled(GenerateJsonSchema):
    """Without a title that only says the parameter's name again."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def arguments_schema(self, schema: core_schema.ArgumentsSchema) -> dict[str, Any]:
        found: dict[str, Any] = super().arguments_schema(schema)
        for part in found.get("properties", {}).values():
            part.pop("title", None)
        return found


def _result(value: Any) -> ToolResult:
    if isinstance(value, ToolResult):
        return value
    try:
        text = value if isinstance(value, str) else to_json(value).decode()
    except PydanticSerializationError as error:
        return ToolResult(status="error", text=f"it returned what JSON has not: {error}")
    return ToolResult(status="success", text=_readable(text))


def _readable(text: str) -> str:
    """As it can go on record: a lone surrogate cannot."""
    return text.encode(errors="backslashreplace").decode()


__all__ = ["FunctionTool", "tool"]
