"""What a run is given by the size of its model, and why."""

import pytest

from stockade.bots.model_profiles import FULL, SMALL, profile_of, reason
from stockade.core.budget import Budget
from stockade.core.messages import ModelInfo
from tests.support.parts import BUILT_IN

ALL = ("shell", "read_file", "write_file", "edit_file", "finish")


def sized(parameters: int | None, **more: object) -> ModelInfo:
    return ModelInfo.model_validate({"name": "m", "provider": "x", "parameters": parameters, **more})


@pytest.mark.parametrize(
    ("parameters", "profile"), [(1_543_714_304, SMALL), (4_020_000_000, SMALL), (7_600_000_000, FULL), (None, FULL)]
)
def test_small_is_what_is_known_to_be(parameters: int | None, profile: object) -> None:
    assert profile_of(sized(parameters)) is profile


def test_the_reason_names_who_says_it() -> None:
    assert reason(sized(None)) == "nobody says how large the model is"
    told = sized(1_543_714_304, sources={"parameters": "Ollama's /api/show"})
    assert reason(told) == "1.5 B parameters by Ollama's /api/show"


def test_a_small_model_gets_the_shell_and_what_was_asked_for_by_name() -> None:
    assert SMALL.offered(ALL, asked=()) == ("shell", "finish")
    assert SMALL.offered(ALL, asked=("edit_file",)) == ("shell", "edit_file", "finish")
    assert FULL.offered(ALL, asked=()) == ALL


def test_bounds() -> None:
    for attended in (False, True):
        assert SMALL.budget(attended=attended) == Budget(max_turns=20, timeout_s=600)
    assert FULL.budget(attended=False) == Budget(max_turns=100, timeout_s=3600)
    assert FULL.budget(attended=True) == Budget(max_turns=100, timeout_s=0)


def test_a_bot_that_cannot_write_is_not_offered_to() -> None:
    assert BUILT_IN["reading"].all_tools == ("shell", "read_file", "finish")
    assert BUILT_IN["writing"].all_tools == ALL
