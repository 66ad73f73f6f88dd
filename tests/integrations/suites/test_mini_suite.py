"""mini-swe-agent has no suite for environments: what its own promise, on ours, and its agent on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.exceptions import Submitted
from minisweagent.models.test_models import DeterministicModel, make_output

from stockade_sandbox.errors import SandboxDied
from stockade_sandbox.integrations.mini_swe_agent import StockadeEnvironment

CLASS = "stockade_sandbox.integrations.mini_swe_agent.StockadeEnvironment"


@pytest.fixture
def env(tmp_path: Path) -> Iterator[StockadeEnvironment]:
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "a").write_text("1")
    made = get_environment(
        {"environment_class": CLASS, "folder": str(tmp_path / "proj"), "timeout": 20, "env": {"WORD": "w"}}
    )
    yield made
    made.cleanup()


def test_commands_as_its_own_environments_do_them(env: StockadeEnvironment) -> None:
    merged = env.execute({"command": "echo $WORD; echo e >&2; pwd; cat a; exit 3"})
    assert merged == {"output": "w\ne\n/workspace\n1", "returncode": 3, "exception_info": ""}
    assert env.execute({"command": "pwd"}, "/tmp")["output"] == "/tmp\n"
    late = env.execute({"command": "echo part; sleep 60"}, timeout=1)
    assert (late["output"], late["returncode"]) == ("part\n", -1)
    assert "not done in 1 s" in late["exception_info"]
    assert env.execute({})["returncode"] == 0


def test_the_end_is_submitted(env: StockadeEnvironment) -> None:
    with pytest.raises(Submitted) as done:
        env.execute({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo the; echo answer"})
    assert done.value.messages[0]["extra"]["submission"] == "the\nanswer\n"
    assert env.execute({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; exit 1"})["returncode"] == 1


def test_its_agent_works_in_it_and_the_host_is_unchanged(env: StockadeEnvironment, tmp_path: Path) -> None:
    commands = ["echo 2 > a; ls /root/.ssh", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat a"]
    outputs = [make_output("so", [{"command": command}]) for command in commands]
    agent = DefaultAgent(
        DeterministicModel(outputs=outputs), env, system_template="{{system}} {{node}}", instance_template="{{task}}"
    )
    done = agent.run("go")
    assert (done["exit_status"], done["submission"]) == ("Submitted", "2\n")
    assert "Linux stockade" in agent.messages[0]["content"]
    assert (tmp_path / "proj" / "a").read_text() == "1"
    assert env.box.apply() == ("a",)
    assert (tmp_path / "proj" / "a").read_text() == "2\n"
    with pytest.raises(SandboxDied):
        env.execute({"command": "true"})
    assert env.serialize()["info"]["config"]["environment_type"] == CLASS
