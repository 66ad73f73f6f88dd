"""What `stockade model` does, beside assemble.py: the adapters that fetch, list, serve and remove models."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from stockade.answers.choice import choose
from stockade.assemble import OnProgress, check_provider, list_models, model_info, model_settings, open_model
from stockade.bots.model_profiles import profile_of
from stockade.core.errors import UsageError
from stockade.core.messages import ModelInfo
from stockade.models.local.catalogue import DEFAULT, RECOMMENDED, Recommended
from stockade.models.local.listing import ModelEntry, remove
from stockade.models.local.pull import pull
from stockade.models.local.serve import served, until_it_dies
from stockade.models.local.server import EmbeddedServer
from stockade.models.local.server_lease import Running, running
from stockade.models.probe import probe_capabilities
from stockade.options import Options
from stockade.runtime.models import is_ours

DEFAULT_MODEL = f"embedded/{DEFAULT}"


def serve(
    name: str, options: Options, host: str, port: int, api_key: str | None, on_progress: OnProgress
) -> AbstractAsyncContextManager[EmbeddedServer]:
    """The embedded server of this model at an address for other programs, while inside; gone after its last user."""
    check_provider(name)
    settings = model_settings(options).model_copy(update={"keep_warm_s": 0.0, "alone": False})
    return served(name, settings, host=host, port=port, api_key=api_key, on_progress=on_progress)


async def probe(options: Options, on_progress: OnProgress) -> tuple[str, ModelInfo, str]:
    """The full name of the model, what is known of it after a new trial, and the answers that suit it.

    Raises ModelFailed when it cannot be asked; UsageError for one that is only a script.
    """
    model, name, _ = await open_model(options, on_progress)
    if model.info.provider == "scripted":
        raise UsageError(f"{name} is a script, there is nothing to try")
    if not is_ours(name):
        return name, model.info, choose(model.info)
    info = await probe_capabilities(model, name, on_progress, again=True)
    return name, info, choose(info)


def recommended() -> Sequence[Recommended]:
    """What is worth pulling, in the order of size."""
    return RECOMMENDED


__all__ = ["DEFAULT_MODEL", "EmbeddedServer", "ModelEntry", "Recommended", "Running", "list_models", "model_info",
           "probe", "profile_of", "pull", "recommended", "remove", "running", "serve", "until_it_dies"]  # fmt: skip
