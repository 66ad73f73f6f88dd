"""Each example runs as its first lines say, and the parts in them pass the suites of their ports."""

import json
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
from stockade.testing import say
from stockade.testing.conformance.answers import BROKEN, WORDS
from stockade.testing.conformance.model import ModelConformance, given

ROOT = Path(__file__).parents[2]
COUNT = say("shell", command="wc -l < data.csv | tee count.txt")
DONE = say("finish", answer="12 lines")
DIFF = """diff --git a/count.txt b/count.txt
new file mode 100644
--- /dev/null
+++ b/count.txt
@@ -0,0 +1 @@
+12

"""
MEND = say("shell", command="sed -i s/-/+/ calc.py")
EXAMPLES: dict[str, tuple[tuple[str, ...], str]] = {
    "own_model.py": ((), "data.csv has 3 lines\n"),
    "own_answers.py": (
        (),
        "I look first. -> tool='shell' command='ls -la' timeout_s=None\nI look first.\n<run>ls -la</run>\n",
    ),
    "read_a_folder.py": ((say("shell", command="wc -l data.csv"), DONE), "12 lines\n"),
    "write_with_review.py": ((COUNT, DONE, DONE), f"{DIFF}applied: count.txt\n"),
    "analyse_a_log.py": (
        (say("shell", command="grep -n error /copied/build.log"), say("finish", answer="b.c line 7: count")),
        "b.c line 7: count\n",
    ),
    "own_bot.py": ((MEND, DONE, DONE), "verified ['calc.py']\n"),
    "own_tool.py": ((say("shell", command="shout hello"), say("finish", answer="HELLO")), "HELLO\n"),
    "sandbox_only.py": (
        (),
        "12 lines\nstatus of a write outside: 1\nstatus when it takes too long: 124\n"
        "written to the overlay: ['sorted.csv']\n",
    ),
    "two_bots_one_sandbox.py": (
        (
            say("shell", command="sort data.csv > sorted.csv && head -n1 sorted.csv"),
            say("finish", answer="It is Bergen."),
        ),
        "It is Bergen.\nIt is Bergen.\n['sorted.csv']\n",
    ),
    "boss_and_helpers.py": (
        (say("sub_task", task="count"), COUNT, DONE, DONE, DONE),
        "12 lines\n['count.txt'] in 2 turns of the boss\n",
    ),
    "talk.py": (
        tuple(json.dumps({"task_done": True, "thoughts": said, "command": ""}) for said in ("A fence.", "Of wood.")),
        "A fence.\nOf wood.\n5 messages\n1 message left\n",
    ),
}
"""What a scripted model answers to each, and what it prints."""


def test_every_example_is_here() -> None:
    assert {path.name for path in (ROOT / "examples").glob("[!_]*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_prints_what_it_should(name: str, tmp_path: Path) -> None:
    answers, printed = EXAMPLES[name]
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps({"content": answer}) + "\n" for answer in answers))
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / name], capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "HOME": str(tmp_path), "STOCKADE_MODEL": f"scripted/{script}"}, cwd=tmp_path,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == (printed, "", 0)


def test_the_bot_of_a_file_runs(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    answers = (say("shell", command="touch x; ls"), say("finish", answer="line 1"))
    script.write_text("".join(json.dumps({"content": answer}) + "\n" for answer in answers))
    done = subprocess.run(
        [sys.executable, "-m", "stockade", "run", "It crashes", "--bot", ROOT / "examples" / "bots" / "triage.toml",
         "--folder", ROOT / "examples" / "demo", "--model", f"scripted/{script}", "--json"],
        capture_output=True, text=True, check=False, timeout=120, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert (done.stderr, done.returncode) == ("", 0)
    first, last = (json.loads(line) for line in (done.stdout.splitlines()[0], done.stdout.splitlines()[-1]))
    assert (first["policy"]["folders"][0]["mode"], first["budget"]["max_turns"]) == ("ro", 10)
    assert (last["answer"], last["changes"]) == ("line 1", [])


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

    @pytest.mark.parametrize("text", BROKEN + WORDS)
    def test_hostile_answers_are_unreadable(self, text: str) -> None:
        with pytest.raises(UnreadableAnswer):
            TagAnswers().read(ModelAnswer(content=text), self.tools)
