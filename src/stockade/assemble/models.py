"""What `stockade model` does, beside assemble.py: the adapters that fetch, list, serve and remove models."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from stockade.assemble import OnProgress, check_provider, list_models, model_info, model_settings
from stockade.models.catalogue import DEFAULT, RECOMMENDED, Recommended
from stockade.models.listing import ModelEntry
from stockade.models.llama_cpp import EmbeddedServer
from stockade.models.pull import pull
from stockade.models.removal import remove
from stockade.models.serve import served, until_it_dies
from stockade.models.warm import Running, running
from stockade.options import Options

DEFAULT_MODEL = f"embedded/{DEFAULT}"


def serve(
    name: str, options: Options, host: str, port: int, api_key: str | None, on_progress: OnProgress
) -> AbstractAsyncContextManager[EmbeddedServer]:
    """The embedded server of this model at an address for other programs, while inside; gone after its last user."""
    check_provider(name)
    settings = model_settings(options).model_copy(update={"keep_warm_s": 0.0, "alone": False})
    return served(name, settings, host=host, port=port, api_key=api_key, on_progress=on_progress)


def recommended() -> Sequence[Recommended]:
    """What is worth pulling, in the order of size."""
    return RECOMMENDED


__all__ = ["DEFAULT_MODEL", "EmbeddedServer", "ModelEntry", "Recommended", "Running", "list_models", "model_info",
           "pull", "recommended", "remove", "running", "serve", "until_it_dies"]  # fmt: skip
