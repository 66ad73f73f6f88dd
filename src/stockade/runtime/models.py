"""From what the user typed to a model that can be entered: the provider is a part by its name."""

import inspect
import os
from collections.abc import Mapping

from stockade.core.ports import Model
from stockade.models.auto import ModelChoice, choose_model
from stockade.models.providers import AUTO, parse_name
from stockade.models.resolve import ModelContext
from stockade.models.settings import ModelSettings, OnProgress, silent
from stockade.runtime import registry

GROUP: registry.Group = "stockade.models"


async def open_model(
    spec: str,
    settings: ModelSettings | None = None,
    on_progress: OnProgress | None = None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[Model, str, str | None]:
    """The model, not yet entered; its full name; and for `auto` the line on why this one.

    UsageError for what is no model's name, and for a provider that is broken; else what the provider raises.
    """
    settings = settings or ModelSettings()
    choice = await choose_model(settings, environment) if spec == AUTO else ModelChoice(spec=spec)
    name = parse_name(choice.spec, registry.names(GROUP))
    context = ModelContext(name.provider, settings, on_progress or silent, environment)
    model = registry.make(GROUP, name.provider, name.name, context)
    if inspect.isawaitable(model):
        model = await model
    if not isinstance(model, Model):
        raise registry.wrong(GROUP, name.provider, f"made {type(model).__name__}, which is no model")
    return model, str(name), choice.note


def is_ours(name: str) -> bool:
    """Whether a model of that full name comes from a provider of ours: another's word on itself is taken."""
    part = registry.owner(GROUP, name.partition("/")[0])
    return part is not None and part.ours


__all__ = ["is_ours", "open_model"]
