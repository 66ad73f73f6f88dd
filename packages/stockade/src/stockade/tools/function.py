"""Python functions as tools: a model is told their names, type hints and docstrings, and what it sends is checked by
the hints. A user's function runs in the user's process, outside the sandbox, and is marked so on record; so are ours
that work on a sandbox (`Functions`), without that mark.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, ParamSpec, Protocol, Self, TypeVar

import anyio
from anyio import to_thread
from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ArgsKwargs, PydanticSerializationError, core_schema, to_json

from stockade.core.actions import ToolResult
from stockade.core.data import wrong_words
from stockade.core.errors import ActionFailed, UsageError
from stockade.core.tools import ToolSpec

P = ParamSpec("P")
R = TypeVar("R")
Status = Literal["success", "data"]
_NO_NAMES = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)


class OneTool(Protocol):
    """`do` is a call of the tool, as core.ports.Toolbox says."""

    @property
    def spec(self) -> ToolSpec: ...

    async def do(self, arguments: Mapping[str, Any], timeout_s: float | None) -> ToolResult: ...


class Tools:
    """Implements core.ports.Toolbox with some tools."""

    def __init__(self, *tools: OneTool) -> None:
        self._tools = {one.spec.name: one for one in tools}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(one.spec for one in self._tools.values())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        return await self._tools[name].do(arguments, timeout_s)


class Functions(Tools):
    """With functions of ours, which raise ActionFailed for the model, SandboxFailed, or nothing. `prefix` stands before
    their names; `status` is that of what they return.
    """

    def __init__(self, *functions: Callable[..., Any], prefix: str = "", status: Status = "data") -> None:
        super().__init__(*(FunctionTool(one, prefix=prefix, status=status, in_process=False) for one in functions))


class FunctionTool(Tools, Generic[P, R]):
    """One function as a toolbox; called as a function it is still that.

    UsageError for a function that a model cannot call: without a name, with `*args`, or of types that JSON has not.
    """

    def __init__(
        self, function: Callable[P, R], *, prefix: str = "", status: Status = "success", in_process: bool = True
    ) -> None:
        functools.update_wrapper(self, function)
        self._function, self._status = function, status
        name = prefix + getattr(function, "__name__", type(function).__name__)
        try:
            if any(one.kind in _NO_NAMES for one in inspect.signature(function).parameters.values()):
                raise UsageError(f"the tool {name!r} has parameters without a name", "a model names each argument")
            self._arguments: TypeAdapter[tuple[tuple[Any, ...], dict[str, Any]]] = TypeAdapter(_binder(function))
            self.spec = ToolSpec(
                name=name,
                description=inspect.getdoc(function) or "",
                parameters=self._arguments.json_schema(schema_generator=_Untitled)
                if in_process
                else short_schema(self._arguments),
                in_process=in_process,
            )
        except ValidationError:
            raise UsageError(f"the tool {name!r} needs another name", "letters, digits, _ and -: def NAME") from None
        except (PydanticUserError, NameError, TypeError, ValueError) as error:
            raise UsageError(f"the tool {name!r} cannot be offered to a model: {error}", "JSON has its types") from None
        super().__init__(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    async def do(self, arguments: Mapping[str, Any], timeout_s: float | None) -> ToolResult:
        """What the function returned: a text as it is, anything else as JSON. What a user's raises, the model is told.

        A plain function has a thread of its own, which goes on by itself when there is no time left for it.
        """
        try:
            args, kwargs = self._arguments.validate_python(ArgsKwargs((), dict(arguments)))
        except ValidationError as error:
            return failure(wrong_words(error))
        try:
            with anyio.fail_after(timeout_s):
                value = await self._called(*args, **kwargs)
        except TimeoutError as error:
            return failure(str(error) or f"{self.spec.name} took longer than {timeout_s} s")
        except ActionFailed as error:
            return failure(error.message)
        except Exception as error:
            if not self.spec.in_process:
                raise
            return failure(_readable(f"{type(error).__name__}: {error}"))
        return _result(value, self._status)

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


def failure(words: str) -> ToolResult:
    return ToolResult(status="error", text=words)


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


class _Short(_Untitled):
    """Also without what an optional parameter is when it is not given: each word of a prompt costs."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])


def short_schema(arguments: TypeAdapter[Any]) -> dict[str, Any]:
    schema = arguments.json_schema(schema_generator=_Short)
    schema.pop("title", None)
    return schema


def _result(value: Any, status: Status) -> ToolResult:
    if isinstance(value, ToolResult):
        return value
    try:
        text = value if isinstance(value, str) else to_json(value).decode()
    except PydanticSerializationError as error:
        return failure(f"it returned what JSON has not: {error}")
    return ToolResult(status=status, text=_readable(text))


def _readable(text: str) -> str:
    """As it can go on record: a lone surrogate cannot."""
    return text.encode(errors="backslashreplace").decode()


__all__ = ["FunctionTool", "Functions", "Tools", "failure", "short_schema", "tool"]
