"""The Planner: AutoGPT's loop. It says what it thinks and plans, and acts when the user authorises it.

Who it is in one run, its profile, is made for the task: asked of a model under a schema, read leniently, changed by the
person.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from pydantic import Field, ValidationError

from stockade.core.actions import Refused
from stockade.core.data import Data
from stockade.core.errors import UnreadableAnswer
from stockade.core.events import ActionFinished, RunEvent, RunStarted
from stockade.core.messages import Message, ModelAnswer, ModelRequest, Sampling, Usage
from stockade.extend import FILES, Bot, BotSpec, Setup
from stockade.extend.answers import first_value, spoken

MAX_DIRECTIVES = 12
MAX_DIRECTIVE_CHARS = 300
MAX_NAME_CHARS = 60
MAX_ROLE_CHARS = 400


class Profile(Data):
    """The directives are sentences; a profile of many is one that a small model talks about in place of working."""

    name: str = Field(min_length=1, max_length=MAX_NAME_CHARS)
    role: str = Field(min_length=1, max_length=MAX_ROLE_CHARS)
    constraints: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    best_practices: tuple[str, ...] = ()


DEFAULT_PROFILE = Profile(
    name="Planner",
    role="a careful engineer who reaches a goal in small steps, each with a reason",
)
CONSTRAINT = "Work only in {workdir}. There is no sudo, no editor, and no program can ask at a prompt."
NO_NETWORK = "There is no network."
RESOURCES = ("A bash shell on Linux whose state stays from command to command.",)
BEST_PRACTICES = (
    "One action at a time; look at each result before the next.",
    "When the task is done and you have checked it, finish with a short answer.",
)


class Overrides(Data):
    """What the user set by flag. `replace`: directives that are given stand in place of all others of their kind."""

    name: str | None = None
    role: str | None = None
    constraints: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    best_practices: tuple[str, ...] = ()
    replace: bool = False

    @property
    def any(self) -> bool:
        return self != Overrides()

    def on(self, profile: Profile) -> Profile:
        """The profile with what was set."""

        def directives(own: Sequence[str], given: Sequence[str]) -> tuple[str, ...]:
            return tuple(given) if self.replace and given else tuple(dict.fromkeys((*own, *given)))

        return Profile(
            name=self.name or profile.name,
            role=self.role or profile.role,
            constraints=directives(profile.constraints, self.constraints),
            resources=directives(profile.resources, self.resources),
            best_practices=directives(profile.best_practices, self.best_practices),
        )


def with_fixed(profile: Profile, workdir: str = "{workdir}", *, network: bool = False) -> Profile:
    """The profile with the directives that every Planner has, before those made for the task."""
    constraints = (CONSTRAINT.replace("{workdir}", workdir), *(() if network else (NO_NETWORK,)))
    return profile.model_copy(
        update={
            "constraints": (*constraints, *profile.constraints),
            "resources": (*RESOURCES, *profile.resources),
            "best_practices": (*BEST_PRACTICES, *profile.best_practices),
        }
    )


def prompt_of(profile: Profile, workdir: str) -> str:
    """The role of a Planner with this profile, for its system prompt."""
    parts = [f"You are {profile.name}, {profile.role.rstrip('.')}. You work in {workdir}, your current folder."]
    for title, lines in (
        ("Constraints", profile.constraints),
        ("Resources", profile.resources),
        ("Best practices", profile.best_practices),
    ):
        if lines:
            parts.append("\n".join([f"{title}:", *(f"{number}. {line}" for number, line in enumerate(lines, 1))]))
    return "\n".join(parts)


MAX_TASK_CHARS = 4000
_ANSWER_TOKENS = 400
_ASKED_CHARS = 120
_MOST, _LEAST = 4, 1
_DIRECTIVES = ("best_practices", "constraints")
_SYSTEM = (
    "You set up a worker for a task that it will do alone in a bash shell on Linux, in a folder."
    " Answer with one JSON object: name (two or three words that say what the worker is), role (one sentence: who it"
    " is and what it is good at), best_practices (1 to 4 short sentences on how to do this task well), constraints"
    " (1 to 4 short sentences on what it must not do). Speak of this task only."
)


def profile_request(task: str, has: str = "") -> ModelRequest:
    """What a model is asked for a profile. `has`: what the worker has, in words."""
    worker = [f"The worker has: {has}."] if has else []
    sentences = {
        "type": "array",
        "items": {"type": "string", "maxLength": _ASKED_CHARS},
        "minItems": _LEAST,
        "maxItems": _MOST,
    }
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40},
            "role": {"type": "string", "maxLength": _ASKED_CHARS + 40},
            "best_practices": sentences,
            "constraints": sentences,
        },
        "required": ["name", "role", *_DIRECTIVES],
        "additionalProperties": False,
    }
    return ModelRequest(
        messages=(
            Message(role="system", content=_SYSTEM),
            Message(role="user", content="\n".join([f"The task:\n{task[:MAX_TASK_CHARS]}", *worker])),
        ),
        sampling=Sampling(temperature=0.0, max_tokens=_ANSWER_TOKENS),
        schema_=schema,
    )


def read_profile(answer: ModelAnswer) -> Profile:
    """The profile in an answer; what is too long is cut. UnreadableAnswer when name or role is missing."""
    found: Any = first_value(spoken(answer.content), "{")
    if not isinstance(found, dict):
        raise UnreadableAnswer("the profile is no JSON object")
    name, role = (_line(found.get(key)) for key in ("name", "role"))
    if not name or not role:
        raise UnreadableAnswer("the profile has no name or no role")
    return Profile(
        name=name[:MAX_NAME_CHARS],
        role=role[:MAX_ROLE_CHARS],
        constraints=_sentences(found.get("constraints")),
        resources=_sentences(found.get("resources")),
        best_practices=_sentences(found.get("best_practices")),
    )


def _line(value: object) -> str:
    """In one line, without what a terminal would obey."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return "".join(char for char in text if char.isprintable())


def _sentences(value: object) -> tuple[str, ...]:
    """Each once, in order."""
    lines = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(dict.fromkeys(line[:MAX_DIRECTIVE_CHARS] for item in lines if (line := _line(item))))[:MAX_DIRECTIVES]


Revise = Callable[[Profile], Awaitable[Profile]]
"""Shows the profile to the user and returns what they made of it."""
_CHANGED = "your settings have changed, and this was not done. "


class Planner(Bot):
    """The loop, under a profile that is made for the task. `overrides` and `revise` are for the runs that it begins."""

    def __init__(self, overrides: Overrides | None = None, revise: Revise | None = None) -> None:
        self.overrides, self.revise = overrides or Overrides(), revise

    def goals(
        self, started: RunStarted, history: Sequence[RunEvent], change: Callable[[Any], Awaitable[Any]]
    ) -> Callable[[], Awaitable[str]]:
        """By its profile, as it was last changed."""
        profile = _present(started, history)

        async def changed() -> str:
            nonlocal profile
            profile = await change(profile)
            return f"{_CHANGED}{prompt_of(profile, started.policy.workdir)}"

        return changed

    async def begin(self, setup: Setup) -> RunStarted:
        started, policy = setup.started, setup.started.policy
        own, used = await self._made(setup)
        profile = self.overrides.on(with_fixed(own, policy.workdir, network=policy.network.mode != "none"))
        if self.revise is not None:
            profile = await self.revise(profile)
        general = PLANNER.prompt.replace("{workdir}", policy.workdir)
        assert general in started.system_prompt
        prompt = started.system_prompt.replace(general, prompt_of(profile, policy.workdir), 1)
        options = {**started.options, "profile": profile.model_dump(mode="json")}
        return started.model_copy(update={"system_prompt": prompt, "options": options, "used": used})

    async def _made(self, setup: Setup) -> tuple[Profile, Usage]:
        """A profile for the task, and what it cost. Not asked for where the user says who it is."""
        if self.overrides.name and self.overrides.role:
            return DEFAULT_PROFILE, Usage()
        setup.on_progress("making a profile for the task", 0, 0)
        answer = await setup.ask(profile_request(setup.started.task, _has(setup.started)))
        try:
            return read_profile(answer), answer.usage
        except UnreadableAnswer as error:
            setup.note(f"the default profile: {error.message}")
            return DEFAULT_PROFILE, answer.usage


def _present(started: RunStarted, history: Sequence[RunEvent]) -> Profile:
    """The one that the bot was told of last."""
    for event in reversed(history):
        if isinstance(event, ActionFinished) and isinstance(event.observation, Refused):
            _, told, prompt = event.observation.reason.partition(_CHANGED)
            if told:
                with suppress(ValidationError):  # the user typed words like those
                    return _profile_in(prompt)
    return Profile.model_validate(started.options["profile"])


def _profile_in(prompt: str) -> Profile:
    """What `prompt_of` wrote. A comma in the name goes to the role."""
    head, *lines = prompt.split("\n")
    name, _, role = head.removeprefix("You are ").rpartition(". You work in ")[0].partition(", ")
    found: dict[str, list[str]] = {"Constraints:": [], "Resources:": [], "Best practices:": []}
    kept: list[str] = []
    for line in lines:
        kept = found.get(line, kept)
        if line not in found:
            kept.append(line.partition(". ")[2])
    constraints, resources, best_practices = map(tuple, found.values())
    return Profile(
        name=name,
        role=role[:MAX_ROLE_CHARS],
        constraints=constraints,
        resources=resources,
        best_practices=best_practices,
    )


def _has(started: RunStarted) -> str:
    """Its tools, and how far its network goes."""
    network = started.policy.network
    reach = {"none": "no network", "open": "the public network"}.get(
        network.mode, f"of the network {', '.join(network.hosts)}"
    )
    return ", ".join((*(started.actions or ()), *started.tools, reach))


PLANNER = BotSpec(
    name="planner",
    summary="plans step by step and asks before each action (stockade plan)",
    prompt=prompt_of(with_fixed(DEFAULT_PROFILE), "{workdir}"),
    tools=("shell", FILES, "ask_user", "finish"),
    authorised=True,
    settings={"answers": "plan"},
    bot=Planner(),
)
