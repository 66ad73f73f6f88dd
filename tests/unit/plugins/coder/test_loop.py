"""The coder's loop with a scripted model in the real sandbox; what it does is read from its events."""

import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from stockade.core.actions import Action
from stockade.core.budget import Budget
from stockade.core.errors import StockadeError
from stockade.core.events import ActionFinished, AnswerUnreadable, MessageInjected, RunEvent, RunFinished, RunStarted
from stockade.core.messages import ModelAnswer, Sampling
from stockade.loop.builtin_hooks import Approval
from stockade.loop.hooks import Hook
from stockade.loop.run import run
from stockade.loop.run_context import Dependencies
from stockade.plugins.coder.answers import SectionAnswers
from stockade.plugins.coder.bot import OFFLINE, CoderBot, Wanted, make_coder
from stockade.plugins.coder.loop import Coder
from stockade.plugins.coder.prompts import cases, system, wrong_values
from stockade.plugins.coder.work import Plan, Result
from stockade.runtime.policy import make_policy
from stockade.runtime.records import SystemClock
from stockade.runtime.sandboxes import open_sandbox
from stockade.runtime.spec import RunSpec
from stockade.testing import MemoryStore, ScriptedModel

pytestmark = pytest.mark.anyio
GOOD = "```python\ndef add(a, b):\n    return a + b\n```"
WRONG = "```python\ndef add(a, b):\n    return a - b\n```"
BROKEN = "```python\ndef add(a, b):\n    return a + b\n\nadd = nothing\n```"
ZERO = "```python\ndef add(a, b):\n    return 0\n```"
TASK = "Write add(a, b). add(1, 2) == 3"


class Done:
    finished: RunFinished
    coder: Coder
    model: ScriptedModel
    events: list[RunEvent]

    @property
    def result(self) -> Result:
        return self.coder.result()

    @property
    def nudges(self) -> list[str]:
        return [event.source for event in self.events if isinstance(event, MessageInjected)]


async def code(
    tmp_path: Path,
    answers: Sequence[str | ModelAnswer | StockadeError],
    task: str = TASK,
    plan: Plan | None = None,
    options: RunSpec | None = None,
    tests: str = "",
    examples: tuple[str, ...] = (),
    budget: Budget | None = None,
    attempt_s: float = 10.0,
    stdin: str = "",
    hooks: tuple[Hook, ...] = (),
) -> Done:
    wanted = Wanted(tests=tests, examples=examples, plan=plan or Plan(), attempt_s=attempt_s, stdin=stdin)
    policy = CoderBot().policy(make_policy(options or RunSpec(), "overlay"))
    done, job = Done(), wanted.job(task)
    done.model, done.coder = ScriptedModel(answers), make_coder(wanted, policy, task)
    sandbox = open_sandbox(policy, "bubblewrap", tmp_path / "layers")
    started = RunStarted(
        at=time.time(), version="0", run_id="r1", task=task, bot="coder", model="scripted/x", answers="sections",
        sandbox=sandbox.backend, policy=policy, budget=budget or Budget(max_turns=0, timeout_s=0),
        sampling=Sampling(temperature=0.0), system_prompt=system(wants_example=not job.has_checks),
    )  # fmt: skip
    store = MemoryStore()
    parts = Dependencies(done.model, SectionAnswers(), sandbox, store, SystemClock(), (), bot=done.coder, hooks=hooks)
    done.finished = await run(started, parts)
    done.events = await store.events("r1")
    return done


async def test_right_at_once(tmp_path: Path) -> None:
    done = await code(tmp_path, [GOOD])
    assert (done.finished.status, done.finished.reason, done.finished.verified) == ("done", "finish", True)
    assert done.finished.answer == "def add(a, b):\n    return a + b\n"
    assert done.result.status == "success"
    assert done.nudges == []


async def test_a_program_that_does_not_run_is_shown_again_with_what_is_wrong(tmp_path: Path) -> None:
    done = await code(tmp_path, [BROKEN, GOOD])
    assert done.result.status == "success"
    first, second = done.model.requests
    assert second.messages[: len(first.messages)] == first.messages
    assert TASK in second.messages[1].content
    assert second.messages[2].content == BROKEN
    assert "NameError: name 'nothing' is not defined" in second.messages[3].content
    assert first.sampling == Sampling(temperature=0.0)
    assert second.sampling.temperature == 0.4


async def test_of_a_program_with_wrong_values_only_the_values_are_told(tmp_path: Path) -> None:
    done = await code(tmp_path, [WRONG, ZERO, GOOD])
    first, second, third = done.model.requests
    assert [len(request.messages) for request in done.model.requests] == [2, 2, 2]
    task = first.messages[1].content.removesuffix("Leave out docstrings and comments.")
    assert second.messages[1].content.startswith(task)
    assert "`add(1, 2)` must give `3`, not `-1`, which was wrong." in second.messages[1].content
    assert "`add(1, 2)` must give `3`, not `0` or `-1`, which was wrong." in third.messages[1].content
    assert "### Plan" in second.messages[1].content
    assert "a - b" not in second.messages[1].content
    assert (second.sampling.temperature, third.sampling.temperature) == (0.8, 0.8)
    assert [event.text for event in done.events if isinstance(event, MessageInjected)] == [
        cases(wrong_values(done.result.attempts[:number])) for number in (1, 2)
    ]


async def test_a_program_that_does_not_run_twice_is_written_anew(tmp_path: Path) -> None:
    done = await code(tmp_path, [BROKEN, BROKEN.replace("a + b", "b + a"), GOOD])
    assert [len(request.messages) for request in done.model.requests] == [2, 4, 2]
    last = done.model.requests[2].messages[1].content
    assert "Programs that were tried failed: The program failed in line 4: `add = nothing`. NameError" in last
    assert "### Plan" in last


async def test_every_program_is_shown_where_that_is_wanted(tmp_path: Path) -> None:
    done = await code(tmp_path, [WRONG, ZERO, GOOD], plan=Plan(rewrite=False))
    first, second, third = done.model.requests
    assert second.messages[: len(first.messages)] == first.messages
    assert third.messages[: len(second.messages)] == second.messages
    assert [one.content for one in third.messages if one.role == "assistant"] == [WRONG, ZERO]
    assert "add(1, 2) gave -1, but it should give 3." in second.messages[3].content
    assert (second.sampling.temperature, third.sampling.temperature) == (0.4, 0.6000000000000001)


async def test_after_three_repairs_everything_but_the_task_is_forgotten(tmp_path: Path) -> None:
    wrong = [f"```python\ndef add(a, b):\n    return a - b - {number}\n```" for number in range(4)]
    done = await code(tmp_path, [*wrong, GOOD])
    assert done.nudges == ["rewrite", "rewrite", "rewrite", "fresh start"]
    assert done.model.requests[4].messages == done.model.requests[0].messages
    assert done.model.requests[4].sampling.temperature == 0.8
    assert done.result.status == "success"
    assert [attempt.start for attempt in done.result.attempts] == [0, 0, 0, 0, 1]


class NoOnce:
    """Refuses the first action."""

    reason: str | None = "never touch the network"

    async def judge(self, action: Action) -> str | None:
        said, self.reason = self.reason, None
        return said


async def test_a_users_refusal_is_in_every_later_question(tmp_path: Path) -> None:
    """Also in that of a fresh start, which forgets all else."""
    done = await code(tmp_path, [BROKEN, BROKEN, BROKEN, GOOD], hooks=(Approval(NoOnce()),))
    assert "fresh start" in done.nudges
    for request in done.model.requests[1:]:
        assert any("never touch the network" in message.content for message in request.messages)


async def test_the_same_program_again_is_a_fresh_start_at_once(tmp_path: Path) -> None:
    done = await code(tmp_path, [WRONG, WRONG.replace("a - b", "a  -  b  # better"), GOOD])
    assert done.nudges == ["rewrite", "fresh start"]
    assert done.result.status == "success"


async def test_attempts_are_bounded_and_the_best_is_returned(tmp_path: Path) -> None:
    half = "```python\ndef add(a, b):\n    return 3\n```"
    task = f"{TASK}, add(2, 2) == 4"
    done = await code(tmp_path, [WRONG, half, ZERO, WRONG], task=task, plan=Plan(repairs=1, fresh_starts=1))
    assert (done.finished.status, done.finished.reason, done.finished.verified) == ("done", "check_failed", False)
    assert done.finished.answer == "def add(a, b):\n    return 3\n"
    assert "4 attempts failed, the best passes 1 of 2 checks" in done.finished.detail
    assert done.result.status == "error"
    assert len(done.result.attempts) == 4


async def test_no_fresh_start_where_none_is_wanted(tmp_path: Path) -> None:
    done = await code(tmp_path, [WRONG] * 3, plan=Plan(repairs=2, fresh_starts=0))
    assert done.nudges == ["rewrite", "rewrite"]


async def test_an_answer_without_a_program_is_an_attempt_and_no_success(tmp_path: Path) -> None:
    done = await code(tmp_path, ["I am sorry.", "", GOOD])
    assert [type(event) for event in done.events].count(AnswerUnreadable) == 2
    assert done.result.status == "success"
    assert [bool(attempt.code) for attempt in done.result.attempts] == [False, False, True]
    assert len({request.messages for request in done.model.requests}) == 1
    assert len({request.sampling for request in done.model.requests}) == 3


async def test_nothing_but_words(tmp_path: Path) -> None:
    done = await code(tmp_path, ["no"] * 8)
    assert (done.finished.status, done.finished.reason, done.finished.answer) == ("stopped", "unreadable", None)
    assert done.result.status == "error"


async def test_a_model_that_is_gone_ends_it_with_the_best_so_far(tmp_path: Path) -> None:
    done = await code(tmp_path, [WRONG])
    assert (done.finished.status, done.finished.reason) == ("failed", "model")
    assert done.result.code == "def add(a, b):\n    return a - b\n"


async def test_without_checks_the_example_has_to_run(tmp_path: Path) -> None:
    task = "Print the square of 12."
    bad, good = ("### Code\n```python\ndef square(x):\n    return x * x\n```\n### Example\n```python\n"
                 f"from main import square\nprint({call})\n```" for call in ("sqare(12)", "square(12)"))  # fmt: skip
    done = await code(tmp_path, [bad, good], task=task)
    assert "### Example" in done.model.requests[0].messages[0].content
    assert "NameError: name 'sqare' is not defined" in done.model.requests[1].messages[3].content
    assert (done.finished.verified, done.result.stdout) == (None, "144\n")


async def test_every_attempt_has_a_workspace_of_its_own_with_the_folder_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "data.txt").write_text("5\n")
    first = (
        "### Code\n```python\nopen('left', 'w')\nopen('data.txt', 'w').write('9')\nraise ValueError('once more')\n```"
    )
    second = "### Code\n```python\nimport os\nprint(os.path.exists('left'), open('data.txt').read())\n```"
    done = await code(tmp_path, [first, second], "Print data.txt.", options=RunSpec(folder=(str(folder),)))
    assert done.result.stdout == "False 5\n\n"
    assert [(change.path, change.kind) for change in done.finished.changes] == []
    assert (folder / "data.txt").read_text() == "5\n"


async def test_the_model_is_told_of_files_and_of_what_cannot_be_installed(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    for name in ("b.csv", "a.txt", ".hidden", "line\nbreak"):
        (folder / name).write_text("")
    done = await code(tmp_path, ["```python\nprint(1)\n```"], "Print 1.", options=RunSpec(folder=(str(folder),)))
    words = done.model.requests[0].messages[1].content
    assert words.startswith(f"Print 1.\n\n{OFFLINE} In the current folder are: a.txt, b.csv.\n\n")


async def test_a_hang_costs_its_seconds_and_is_told(tmp_path: Path) -> None:
    hang = "```python\ndef add(a, b):\n    while True:\n        pass\n```"
    done = await code(tmp_path, [hang, GOOD], attempt_s=1.0)
    assert "it did not end within 1 s" in done.result.attempts[0].verdict.words
    assert done.result.status == "success"


async def test_requirements_without_a_network(tmp_path: Path) -> None:
    needs = "### Requirements\nno-such-thing-9\n### Code\n```python\nimport no_such_thing_9\n```"
    done = await code(tmp_path, [needs] * 2, "Do it.", plan=Plan(repairs=1, fresh_starts=0))
    assert "use the standard library only" in done.model.requests[1].messages[3].content
    assert "--net pypi.org" in done.finished.detail


def wheel(folder: Path, name: str) -> Path:
    """A library of one function, as pip installs it."""
    path, info = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", "def seven():\n    return 7\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return folder


async def test_a_library_is_installed_for_those_that_declare_it_and_for_no_other(tmp_path: Path) -> None:
    """By pip in the sandbox; from a folder, for the tests have no network. PyCapsule kept an old requirements.txt."""
    options = RunSpec(
        net="localhost:9",
        copy=(f"{wheel(tmp_path / 'wheels', 'sevens')}:/copied/wheels",),
        env=("PIP_NO_INDEX=1", "PIP_FIND_LINKS=/copied/wheels"),
    )
    use = "### Code\n```python\nfrom sevens import seven\n\ndef add(a, b):\n    return {}\n```"
    declared = f"### Requirements\nsevens\n{use}"
    answers = [declared.format("seven()"), use.format("a + b"), declared.format("a + b")]
    done = await code(tmp_path, answers, options=options)
    assert [attempt.verdict.checks_passed for attempt in done.result.attempts] == [0, 0, 1]
    assert "add(1, 2) gave 7, but it should give 3." in done.result.attempts[0].verdict.words
    assert "No module named 'sevens'" in done.result.attempts[1].verdict.words
    assert done.result.status == "success"
    installed = [event for event in done.events if event.type == "action_started" and "pip" in str(event.action.action)]
    assert len(installed) == 1


async def test_an_installation_that_fails_is_seen_and_told(tmp_path: Path) -> None:
    """PyCapsule's script went on after a failed pip."""
    needs = "### Requirements\nno-such-thing-9\n### Code\n```python\nprint('ran all the same')\n```"
    done = await code(
        tmp_path, [needs, "### Code\n```python\nprint(1)\n```"], "Print 1.", options=RunSpec(net="localhost:9")
    )
    words = done.result.attempts[0].verdict.words
    assert "Nothing can be installed, for the network refuses it" in words
    assert done.result.attempts[0].stdout == ""
    assert (done.result.status, done.result.stdout) == ("success", "1\n")


async def test_tests_of_the_person(tmp_path: Path) -> None:
    done = await code(tmp_path, [WRONG, GOOD], "Write add.", tests="def test_add():\n    assert add(2, 2) == 4\n")
    assert done.result.status == "success"
    assert "add(2, 2) gave 0, but it should give 4." in done.result.attempts[0].verdict.words


async def test_the_model_is_told_what_the_program_is_checked_by(tmp_path: Path) -> None:
    tests = "def test_add():\n    assert add(2, 2) == 4\n"
    done = await code(
        tmp_path, [GOOD], "Write it.", tests=tests, examples=("add('a', 'b') == 'ab'",), stdin="1\n" * 300
    )
    words = done.model.requests[0].messages[1].content
    assert words.startswith(
        "Write it.\n\nThe program must define: def add(a1: str, a2: str)\n\nIt must hold:\nadd('a',"
    )
    assert tests in words
    assert "Its standard input is:\n```\n" + "1\n" * 250 + "\n... and more\n```" in words
    assert done.result.status == "success"


async def test_a_program_that_asks_for_input_is_told_that_there_is_none(tmp_path: Path) -> None:
    asks = "### Code\n```python\nname = input('who? ')\nprint(name)\n```"
    done = await code(tmp_path, [asks, "### Code\n```python\nprint(1)\n```"], "Greet.")
    assert "EOFError" in done.result.attempts[0].verdict.words
    assert done.result.status == "success"


async def test_another_name_for_the_wanted_function(tmp_path: Path) -> None:
    done = await code(tmp_path, [GOOD.replace("add", "add_numbers")])
    assert done.result.status == "success"
    assert done.result.code.endswith("add = add_numbers\n")


async def test_the_time_is_over_with_the_best_so_far(tmp_path: Path) -> None:
    hang = "```python\ndef add(a, b):\n    while True:\n        pass\n```"
    done = await code(tmp_path, [WRONG, hang, hang], budget=Budget(max_turns=0, timeout_s=5.0), attempt_s=60.0)
    assert (done.finished.status, done.finished.reason) == ("stopped", "time")
    assert done.finished.answer == "def add(a, b):\n    return a - b\n"


async def test_a_bound_of_tokens_ends_it(tmp_path: Path) -> None:
    done = await code(tmp_path, [WRONG] * 8, budget=Budget(max_turns=0, timeout_s=0, max_tokens=150))
    assert (done.finished.status, done.finished.reason) == ("stopped", "tokens")


async def test_all_of_it_is_on_record_before_it_counts(tmp_path: Path) -> None:
    done = await code(tmp_path, [WRONG, GOOD])
    kinds = [event.type for event in done.events]
    assert kinds[:3] == ["run_started", "sandbox_started", "model_started"]
    assert kinds[3:6] == ["model_answered", "answer_understood", "action_started"]
    assert kinds[-1] == "run_finished"
    assert kinds.count("action_started") == kinds.count("action_finished")
    assert all(event.observation.kind != "failed" for event in done.events if isinstance(event, ActionFinished))
