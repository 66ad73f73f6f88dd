"""The answer protocol of a run, a part by its name. A run has one: the others are not imported."""

from stockade.answers.choice import AUTO, choose
from stockade.core.errors import UsageError
from stockade.core.messages import ModelInfo
from stockade.core.ports import AnswerProtocol
from stockade.runtime import registry

GROUP: registry.Group = "stockade.answers"


def pick_protocol(name: str, info: ModelInfo | None = None) -> AnswerProtocol:
    """The protocol of that name; for `auto` what suits the model. UsageError when there is none of that name."""
    if name == AUTO:
        name = choose(info) if info is not None else "json"
    if name not in (known := registry.names(GROUP)):
        raise UsageError(f"there are no answers {name!r}", f"--answers {AUTO}, " + ", ".join(known))
    protocol = registry.make(GROUP, name)
    if not isinstance(protocol, AnswerProtocol):
        raise registry.wrong(GROUP, name, f"made {type(protocol).__name__}, which is no answer protocol")
    return protocol
