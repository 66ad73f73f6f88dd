"""A LoRA adapter, looked at before it is loaded: llama.cpp's own words for a bad one name neither it nor the flag."""

import re
from pathlib import Path

from stockade.core.errors import ModelUnavailable
from stockade.models.gguf import GgufInfo, read_gguf

HINT = "give --lora the .gguf file of an adapter that was made for this model"


def check(path: Path, model: GgufInfo | None = None) -> None:
    """ModelUnavailable, in one line, when it is none, is cut short, or is for other models than `model`. Blocking."""
    found = read_gguf(path, "LoRA adapter", HINT)
    if found.kind != "adapter":
        raise ModelUnavailable(f"not a LoRA adapter: {path} is a {found.kind or 'model'}", HINT)
    if model is not None and found.architecture != model.architecture:
        raise ModelUnavailable(
            f"the LoRA adapter {path} is for {found.architecture} models, {model.path} is {model.architecture}", HINT
        )


def is_its_fault(reason: str) -> bool:
    """Whether these last words of llama.cpp are about the adapter."""
    return re.search(r"lora|adapter", reason, re.IGNORECASE) is not None
