"""Which protocol a model is spoken to in."""

from collections.abc import Mapping

from stockade.answers.action_list import ListAnswers
from stockade.answers.code_sections import SectionAnswers
from stockade.answers.fenced import FencedAnswers
from stockade.answers.json_schema import JsonAnswers
from stockade.answers.native_tools import NativeAnswers
from stockade.answers.plan import PlanAnswers
from stockade.answers.use_tool_line import UseToolAnswers
from stockade.core.errors import UsageError
from stockade.core.messages import ModelInfo
from stockade.core.ports import AnswerProtocol

AUTO = "auto"
PROTOCOLS: Mapping[str, type[AnswerProtocol]] = {
    "native": NativeAnswers,
    "json": JsonAnswers,
    "fenced": FencedAnswers,
    "use-tool": UseToolAnswers,
    "sections": SectionAnswers,
    "list": ListAnswers,
    "plan": PlanAnswers,
}


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
    return PROTOCOLS[name]()
