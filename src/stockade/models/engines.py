"""Which llama.cpp serves a model."""

from pathlib import Path

from stockade.models.gguf import GgufInfo
from stockade.models.progress import OnProgress
from stockade.models.settings import ModelSettings


async def choose_engine(path: Path, info: GgufInfo, settings: ModelSettings, on_progress: OnProgress) -> Path | None:
    """A stock `llama-server` that was measured to be faster with this model; None: ours."""
    return None
