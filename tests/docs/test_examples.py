"""Each example runs as its first lines say, and the parts in them pass the suites of their ports."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from examples.own_answers import TagAnswers
from examples.own_model import FunctionModel

from stockade.core.actions import Answer, Finish, Shell, Step
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import Message, ModelAnswer
from stockade.core.ports import AnswerProtocol, Model
from stockade.testing.conformance.answers import HOSTILE
from stockade.testing.conformance.model import ModelConformance, given

ROOT = Path(__file__).parents[2]
PRINTED = {
    "own_model.py": "data.csv has 3 lines\n",
    "own_answers.py": "I look first. -> tool='shell' command='ls -la' timeout_s=None\n"
    "I look first.\n<run>ls -la</run>\n",
}


def test_every_example_is_here() -> None:
    assert {path.name for path in (ROOT / "examples").glob("[!_]*.py")} == set(PRINTED)


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example_prints_what_it_should(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / name], capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "HOME": str(tmp_path)}, cwd=tmp_path,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == (PRINTED[name], "", 0)


def said(messages: tuple[Message, ...]) -> str:
    return f"You said {len(messages)} things."


def slowly(messages: tuple[Message, ...]) -> str:
    time.sleep(0.2)
    return said(messages)


class TestFunctionModel(ModelConformance):
    enforces_schema = False

    def open_model(self) -> AbstractAsyncContextManager[Model]:
        return given(FunctionModel(said))

    def open_slow(self) -> AbstractAsyncContextManager[Model]:
        return given(FunctionModel(slowly))


class TestTags:
    """The suite for actions that tags can spell."""

    tools: Sequence[str] = ("shell", "finish")

    @pytest.mark.parametrize("step", [Shell(command="ls -la && cat <x >y"), Finish(answer="42")])
    def test_what_it_writes_it_reads(self, step: Shell | Finish) -> None:
        protocol: AnswerProtocol = TagAnswers()
        answer = Answer(thought="First I look.", steps=(Step(action=step),))
        assert protocol.read(ModelAnswer(content=protocol.write(answer).content), self.tools) == answer

    @pytest.mark.parametrize("text", HOSTILE)
    def test_hostile_answers_are_unreadable(self, text: str) -> None:
        with pytest.raises(UnreadableAnswer):
            TagAnswers().read(ModelAnswer(content=text), self.tools)
