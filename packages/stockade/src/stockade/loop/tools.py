"""The tools of a run: what is offered to the model, and who does a call."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from stockade.core.actions import BUILT_IN_TOOLS, ToolCall, ToolResult
from stockade.core.errors import ActionFailed, ToolsUnavailable, UsageError
from stockade.core.events import ToolsReady
from stockade.core.ports import Toolbox
from stockade.core.tools import Offered, ToolSpec
from stockade.loop.parts import Parts
from stockade.loop.record import Record

MAX_TOOLS = 64
MAX_RESULT_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class Tools:
    """`offered` to the model; `boxes` by the name of each tool that is no built-in action."""

    offered: tuple[Offered, ...]
    boxes: Mapping[str, Toolbox] = field(default_factory=dict)

    async def call(self, action: ToolCall, timeout_s: float | None) -> ToolResult:
        """What the tool returned, of a bounded size. ActionFailed when there is none of that name."""
        box = self.boxes.get(action.name)
        if box is None:
            raise ActionFailed(f"there is no tool {action.name!r} here any more")
        result = await box.call(action.name, action.arguments, timeout_s)
        if len(result.text) > MAX_RESULT_CHARS:
            return result.model_copy(update={"text": f"{result.text[:MAX_RESULT_CHARS]}\n[the rest was cut]"})
        return result


NO_TOOLS = Tools(())


@asynccontextmanager
async def ready(parts: Parts, record: Record) -> AsyncIterator[Tools]:
    """Every toolbox of the run, entered in order; what they hold is on record before the model hears of it.

    ToolsUnavailable when one cannot be used, or when two tools have one name.
    """
    async with AsyncExitStack() as stack:
        boxes: dict[str, Toolbox] = {}
        specs: list[ToolSpec] = []
        for box in parts.toolboxes:
            try:
                await stack.enter_async_context(box)
            except UsageError as error:
                raise ToolsUnavailable(error.message, error.hint) from error
            for spec in box.specs:
                if spec.name in boxes or spec.name in BUILT_IN_TOOLS:
                    raise ToolsUnavailable(f"there are two tools of the name {spec.name}", "leave one of them out")
                boxes[spec.name] = box
                specs.append(spec)
        if len(specs) > MAX_TOOLS:
            raise ToolsUnavailable(f"{len(specs)} tools are more than the {MAX_TOOLS} that a bot may have")
        if tuple(specs) != record.state.tools:
            await record.add(ToolsReady(at=parts.clock.now(), tools=tuple(specs)))
        yield Tools((*parts.tools, *specs), boxes)
