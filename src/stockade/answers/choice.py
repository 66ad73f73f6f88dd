"""Which protocol a model is spoken to in. A run has one: the others are not imported."""

import importlib
from collections.abc import Mapping

from stockade.core.errors import UsageError
from stockade.core.messages import ModelInfo
from stockade.core.ports import AnswerProtocol

AUTO = "auto"
PROTOCOLS: Mapping[str, tuple[str, str]] = {
    "native": ("stockade.answers.native_tools", "NativeAnswers"),
    "json": ("stockade.answers.json_schema", "JsonAnswers"),
    "fenced": ("stockade.answers.fenced", "FencedAnswers"),
    "use-tool": ("stockade.plugins.wasm.answers", "UseToolAnswers"),
    "sections": ("stockade.plugins.coder.answers", "SectionAnswers"),
    "list": ("stockade.plugins.shell_bot.answers", "ListAnswers"),
    "plan": ("stockade.plugins.planner.answers", "PlanAnswers"),
}
"""Name -> (module, class). One that a single bot or kind of tool needs is of that plug-in."""


def choose(info: ModelInfo) -> str:
    """The name of the protocol for a model: the strictest one that it keeps.

    `native_tools` must mean that a call was seen to come back: the word of a template is not enough.
    """
    if info.native_tools:
        return "native"
    return "json" if info.enforces_schema else "fenced"


def make_protocol(name: str) -> AnswerProtocol:
    """A protocol by its name. UsageError when there is none of it."""
    if name not in PROTOCOLS:
        raise UsageError(f"there are no answers {name!r}", f"--answers {AUTO}, " + ", ".join(PROTOCOLS))
    module, kind = PROTOCOLS[name]
    made: AnswerProtocol = getattr(importlib.import_module(module), kind)()
    return made
