"""Which protocol suits a model."""

from stockade.core.messages import ModelInfo

AUTO = "auto"


def choose(info: ModelInfo) -> str:
    """The name of the protocol for a model: the strictest one that it keeps.

    `native_tools` must mean that a call was seen to come back: the word of a template is not enough.
    """
    if info.native_tools:
        return "native"
    return "json" if info.enforces_schema else "fenced"
