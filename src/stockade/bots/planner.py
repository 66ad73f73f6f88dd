"""The Planner: AutoGPT's loop. It says what it thinks and plans, and acts when the person authorises it."""

from collections.abc import Sequence

from stockade.bots.model_profiles import FILES
from stockade.bots.spec import BotSpec
from stockade.core.data import Data
from stockade.core.profile import Profile

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
    """What the person set by flag. `replace`: directives that are given stand in place of all others of their kind."""

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


PLANNER = BotSpec(
    name="planner",
    summary="thinks aloud, plans, and does each action only when you authorise it (stockade plan)",
    prompt=prompt_of(with_fixed(DEFAULT_PROFILE), "{workdir}"),
    tools=("shell", FILES, "ask_user", "finish"),
    authorised=True,
    answers="plan",
)
