"""What a strong model does right is carried out as it is: not one refusal, turn or word of ours comes between.

The trajectories were written by looking at the list of tools only. Each runs through the real command, in the real
sandbox, on the defaults of a model that nobody knows.
"""

from pathlib import Path

import pytest

from tests.cli.conftest import Stage
from tests.trajectories.page import ALL, forced, stage_in
from tests.trajectories.run import disturbances, play
from tests.trajectories.trajectory import Trajectory


@pytest.mark.parametrize("trajectory", ALL, ids=lambda one: one.name)
def test_a_correct_run_is_left_alone(trajectory: Trajectory, stage: Stage) -> None:
    played = play(trajectory, stage)
    assert disturbances(trajectory, played) == []
    ended = next(event for event in reversed(played.events) if event["type"] == "run_finished")
    assert (ended["status"], ended["answer"]) == ("done", trajectory.answer), played.seen
    assert played.changed == trajectory.after


def test_forced_on_a_strong_model_the_plug_in_disturbs_at_most_one(tmp_path: Path) -> None:
    disturbed = {one.name: found for one in ALL if (found := forced(one, stage_in(tmp_path / one.name))[0])}
    assert len(disturbed) <= 1, disturbed
