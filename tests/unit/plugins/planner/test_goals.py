"""What a Planner's profile is where its run goes on."""

import pytest

from stockade.core.actions import Refused
from stockade.core.events import ActionFinished
from stockade.plugins.planner.bot import _CHANGED, MAX_ROLE_CHARS, Profile, _present, prompt_of
from tests.unit.loop.helpers import started

FIRST = Profile(name="Counter", role="one who counts", constraints=("Remove no file.",))


def present(*reasons: str) -> Profile:
    history = [ActionFinished(at=0, turn=1, step=0, observation=Refused(reason=reason)) for reason in reasons]
    run = started().model_copy(update={"options": {"profile": FIRST.model_dump(mode="json")}})
    return _present(run, history)


@pytest.mark.parametrize(
    "profile",
    [
        Profile(name="Abacus", role="one who adds"),
        Profile(name="A", role="b, who adds, in words", resources=("1. a list: of things",), best_practices=("x", "y")),
    ],
)
def test_it_is_the_one_that_the_bot_was_told_of_last(profile: Profile) -> None:
    told = f"the user refused it: {_CHANGED}{prompt_of(profile, '/workspace')}"
    assert present(told, "the user refused it: no") == profile


@pytest.mark.parametrize("reason", ["no", f"the user refused it: {_CHANGED}", f"the user refused it: {_CHANGED}ha, ha"])
def test_words_of_the_user_are_no_profile(reason: str) -> None:
    assert present(reason) == FIRST


def test_a_comma_in_a_name_never_makes_the_role_too_long() -> None:
    long = Profile(name="A, " + "b" * 50, role="r" * MAX_ROLE_CHARS)
    assert len(present(_CHANGED + prompt_of(long, "/workspace")).role) == MAX_ROLE_CHARS
