"""A bot is told of what it was given that is not as always: folders, their modes, copies, the network, the person."""

import pytest

from stockade.bots.opening import filled, given, opening
from stockade_sandbox.policy import CopyRule, FolderMode, FolderRule, Network, Policy
from tests.support.parts import BUILT_IN, make_protocol

ALLOWED = Network(mode="allow", hosts=("pypi.org", "files.pythonhosted.org:443"))


def _folders(*modes: FolderMode) -> tuple[FolderRule, ...]:
    inside = ["/workspace", *(f"/folders/{number}" for number in range(1, len(modes)))]
    return tuple(FolderRule(host="/nowhere", mode=mode, inside=at) for mode, at in zip(modes, inside, strict=True))


@pytest.mark.parametrize("policy", [Policy(), Policy(folders=_folders("overlay")), Policy(folders=_folders("rw"))])
def test_what_is_as_always_costs_no_word(policy: Policy) -> None:
    assert given("In {workdir}.", policy, knows_readonly=False) == ""
    assert filled("There is {network} and {nobody}.", policy, ()) == "There is no network and nobody to ask."


def test_a_folder_that_can_only_be_read_and_further_ones_are_named() -> None:
    told = given("", Policy(folders=_folders("ro", "overlay", "ro")), knows_readonly=False)
    assert told == ("/workspace can only be read. More folders of the user: /folders/1, /folders/2 (can only be read).")
    assert given("", Policy(folders=_folders("ro")), knows_readonly=True) == ""


def test_copies_are_named_where_the_prompt_does_not() -> None:
    policy = Policy(copies=(CopyRule(host="/x", inside="/copied/x.log"),))
    assert given("", policy, knows_readonly=False) == "Copied in for you: /copied/x.log."
    assert given("Read /copied/x.log.", policy, knows_readonly=False) == ""


def test_the_network_that_there_is() -> None:
    words = "a network by HTTP and TLS (only pypi.org, files.pythonhosted.org:443)"
    assert given("", Policy(network=ALLOWED), knows_readonly=False) == f"There is {words}."
    assert given("{network}", Policy(network=ALLOWED), knows_readonly=False) == ""
    assert filled("{network}, {a}", Policy(network=ALLOWED), ()) == words + ", {a}"
    assert filled("{network}", Policy(network=Network(mode="open")), ()) == "a network by HTTP and TLS"
    many = Network(mode="allow", hosts=tuple(f"h{number}.org" for number in range(99)))
    assert filled("{network}", Policy(network=many), ()).endswith("h19.org, ...)")


def test_who_can_be_asked() -> None:
    assert filled("{nobody}", Policy(), ("shell", "ask_user")) == "nobody to ask but the user (ask_user)"


@pytest.mark.parametrize("name", sorted(set(BUILT_IN) - {"planner", "shell"}))
def test_no_bot_with_a_network_is_told_that_there_is_none(name: str) -> None:
    """The Planner's directives are the person's to see and change; the Shell bot is told to find out."""
    text = opening(BUILT_IN[name], make_protocol("json"), Policy(network=ALLOWED))
    assert "no network" not in text
    assert "{" not in text.partition("Answer with")[0]
    assert text.count("only pypi.org") == 1
