"""From a task to a Planner's run that is ready to start."""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from stockade.approval.authorise import Authoriser
from stockade.core.data import Data
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import Usage
from stockade.core.ports import Model, OnEvent, OnProgress, OnText, RunStore
from stockade.core.secrets import build_redactor
from stockade.models.smart_and_fast import SmartAndFast
from stockade.plugins.planner.bot import (
    DEFAULT_PROFILE,
    PLANNER,
    Overrides,
    Profile,
    profile_request,
    prompt_of,
    read_profile,
    with_fixed,
)
from stockade.runtime import factory, models
from stockade.runtime.models import open_model
from stockade.runtime.sandboxes import forget
from stockade.runtime.spec import Options

FAST = "FAST_"
"""`FAST_LLAMAFILE_URL` is LLAMAFILE_URL for the fast model, and so with every variable of a provider."""
Revise = Callable[[Profile], Awaitable[Profile]]
"""Shows the profile to the person and returns what they made of it."""


__all__ = ["Overrides", "Wishes", "open_fast", "prepare_plan", "with_fast"]


class Wishes(Data):
    """How a Planner shall work. `granted`: actions done without a question, None is any number."""

    overrides: Overrides = Overrides()
    granted: int | None = 0


async def prepare_plan(
    options: Options,
    wishes: Wishes,
    revise: Revise,
    store: RunStore,
    on_event: OnEvent | None = None,
    on_text: OnText | None = None,
    on_progress: OnProgress | None = None,
    *,
    attended: bool = False,
) -> factory.Prepared:
    """Everything of the run but its start; errors and `attended` are those of `factory.prepare`."""
    answers = PLANNER.answers if options.answers == "auto" else options.answers
    options = options.model_copy(update={"bot": PLANNER.name, "answers": answers})
    fast = await open_fast(options.fast_model, options, on_progress)
    prepared = await factory.prepare(options, store, on_event, on_text, on_progress, attended=attended)
    started = prepared.started
    try:
        redactor = build_redactor(os.environ, started.policy.environment, options.redact)
        model = fast or prepared.parts.model
        own, used, note = await _profile(model, redactor.text(started.task), wishes.overrides, on_progress)
        policy = started.policy
        profile = with_fixed(own, policy.workdir, network=policy.network.mode != "none")
        profile = await revise(wishes.overrides.on(profile))
    except BaseException:
        forget(started.run_id)
        raise
    started = started.model_copy(
        update={
            "system_prompt": _with_profile(started.system_prompt, profile, started.policy.workdir),
            "options": {**started.options, **_recorded(profile, wishes, options)},
            "used": used,
        }
    )
    parts = prepared.parts
    if isinstance(parts.approver, Authoriser):
        parts.approver.granted = wishes.granted
    if fast is not None:
        parts = replace(parts, model=SmartAndFast(parts.model, fast))
    notes = ". ".join(words for words in (prepared.note, note) if words)
    return replace(prepared, started=started, parts=parts, note=notes or None)


def _with_profile(prompt: str, profile: Profile, workdir: str) -> str:
    """The system prompt of a Planner in general, with this profile."""
    general = PLANNER.prompt.replace("{workdir}", workdir)
    assert general in prompt
    return prompt.replace(general, prompt_of(profile, workdir), 1)


def _recorded(profile: Profile, wishes: Wishes, options: Options) -> dict[str, object]:
    granted = {} if wishes.granted == 0 else {"continuous": wishes.granted or "unlimited"}
    fast = {"fast_model": options.fast_model} if options.fast_model else {}
    return {"profile": profile.model_dump(mode="json"), **granted, **fast}


async def with_fast(model: Model, fast_model: str, options: Options, on_progress: OnProgress | None) -> SmartAndFast:
    """The model of a run that goes on, with the fast one of its start beside it."""
    fast = await open_fast(fast_model, options, on_progress)
    assert fast is not None
    return SmartAndFast(model, fast)


async def open_fast(name: str | None, options: Options, on_progress: OnProgress | None) -> Model | None:
    """The fast model, not entered; None where none is wanted. Its server is where the FAST_ variables say."""
    if not name:
        return None
    environment = fast_environment(os.environ)
    model, _, _ = await open_model(name, models.model_settings(options), on_progress, environment)
    return model


def fast_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment as the fast model sees it. A key of the smart model's server is not sent to another server."""
    own = {name.removeprefix(FAST): value for name, value in environ.items() if name.startswith(FAST)}
    keys = {name for name in environ if name.endswith("_API_KEY")} if any(_names_place(name) for name in own) else set()
    return {**{name: value for name, value in environ.items() if name not in keys}, **own}


def _names_place(variable: str) -> bool:
    return variable.endswith(("_URL", "_HOST", "_BASE", "_ENDPOINT"))


async def _profile(
    model: Model, task: str, overrides: Overrides, on_progress: OnProgress | None
) -> tuple[Profile, Usage, str | None]:
    """A profile for the task, what it cost, and a line where it is not the model's. Not asked for where the flags say
    who it is.
    """
    if overrides.name and overrides.role:
        return DEFAULT_PROFILE, Usage(), None
    if on_progress is not None:
        on_progress("making a profile for the task", 0, 0)
    async with model:
        answer = await model.ask(profile_request(task))
    try:
        return read_profile(answer), answer.usage, None
    except UnreadableAnswer as error:
        return DEFAULT_PROFILE, answer.usage, f"the default profile: {error.message}"
