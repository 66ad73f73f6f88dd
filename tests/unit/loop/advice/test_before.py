"""Actions that are asked about once before they are done."""

from collections.abc import Iterable

import pytest

from stockade.answers.json_schema import JsonAnswers
from stockade.core.actions import Action, CommandOutput, Observation, Refused, Shell, Step, WriteFile
from stockade.core.errors import ActionFailed
from stockade.core.messages import ModelAnswer
from stockade.core.ports import ExecResult
from stockade.loop.advice import after, before, searches, writing
from stockade.loop.advice.said import Said
from stockade.loop.state import Done
from stockade.testing import MemorySandbox, say
from tests.unit.loop.helpers import Bench, started

pytestmark = pytest.mark.anyio
HELD = '{"name": "shop", "port": 3000}'


class OneFile(MemorySandbox):
    """Every path holds `data` as a text; None: there is none."""

    def __init__(self, data: bytes | None) -> None:
        super().__init__()
        self.data = data

    async def exec(self, argv: Iterable[str], *_: object, **__: object) -> ExecResult:
        there = self.data is not None and next(iter(argv)) == "cat"
        return ExecResult(exit_code=int(not there), stdout=(self.data or b"") if there else b"", stderr=b"")


def done(action: Action, observation: Observation | None = None) -> Done:
    return Done(1, Step(action=action), observation or CommandOutput(exit_code=0))


async def doubt(action: Action, *earlier: Done, told: str = "", data: bytes | None = None) -> str | None:
    said = await before.doubt(action, "", earlier, (told,), OneFile(data))
    return Said.of(said).spoken if said is not None else None


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("grep '[ERROR]' app.log > errors.log", "instead: grep -F '[ERROR]' app.log > errors.log"),
        ("cat app.log | grep -iE '[Warning]'", "instead: cat app.log | grep -F -i '[Warning]'"),
        (
            "awk '{sum += $3} END {print sum}' sales.csv > total.txt",
            "instead: awk -F, '{sum += $3} END {print sum}' sales.csv > total.txt",
        ),
        ("wc -l data.csv > count.txt", "instead: wc -l < data.csv > count.txt"),
        ("for f in *.a; do mv $f ${f%.a}.b; done", 'instead: for f in *.a; do mv "$f" "${f%.a}.b"; done'),
    ],
)
async def test_a_command_that_is_surely_not_meant_is_asked_about(command: str, words: str) -> None:
    assert words in (await doubt(Shell(command=command)) or "")


@pytest.mark.parametrize(
    "command",
    [
        "grep '[aeiou]' a.txt", "grep '[ABC]' a.txt", "grep '[A-Z]' a.txt", r"grep '\[ERROR\]' a.log", "ls [ERROR]",
        "grep -F '[ERROR]' a.log", "grep '[[:alpha:]]' a", "awk -F, '{print $3}' a.csv", "awk '{print $3}' a.txt",
        "awk 'END {print NR}' a.csv", "awk 'BEGIN {FS = \",\"} {print $3}' a.csv", "awk '{print $0}' a.csv",
        'for f in *.a; do mv "$f" "${f%.a}.b"; done', "mv a b; echo $HOME", "rm -f '$x'", "wc -l data.csv",
        "wc -l < data.csv > count.txt", "wc -l a.txt b.txt > count.txt", "wc -l a.txt | awk '{print $1}' > n.txt",
    ],
)  # fmt: skip
async def test_other_commands_are_done(command: str) -> None:
    assert await doubt(Shell(command=command)) is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("$(cat package.json | jq .version)", "instead: cat package.json | jq .version > v.txt"),
        ("cat users.json | jq -r '.[].name'", "instead: cat users.json | jq -r '.[].name' > v.txt"),
        ("wc -l a > b", "instead: wc -l < a > b"),
        ("$(wc -l < a) lines", 'instead: echo "$(wc -l < a) lines" > v.txt'),
    ],
)
async def test_a_command_is_no_text(content: str, words: str) -> None:
    assert (await doubt(WriteFile(path="v.txt", content=content)) or "").endswith(words)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("run.sh", "cat a | sort"), ("README.md", "cat a | sort"), ("v.txt", "#!/bin/sh"), ("v.txt", "cat and dog"),
        ("v.txt", "2.14.3"), ("v.txt", "cat a | sort\nwc -l a"), ("Makefile", "python3 -m x"),
    ],
)  # fmt: skip
async def test_other_text_is_written(path: str, content: str) -> None:
    assert await doubt(WriteFile(path=path, content=content)) is None


async def test_a_file_that_was_never_looked_at_is_shown_before_it_is_replaced() -> None:
    words = await doubt(WriteFile(path="config.json", content="port: 8080"), data=HELD.encode())
    assert words is not None
    assert HELD in words


async def test_what_was_looked_at_shown_or_stays_as_it_is_is_replaced() -> None:
    write = WriteFile(path="/workspace/config.json", content='{"port": 8080}')
    assert await doubt(write, done(Shell(command="cat config.json")), data=HELD.encode()) is None
    assert await doubt(write, told=f"config.json (30 bytes)\n  | {HELD}", data=HELD.encode()) is None
    assert await doubt(write, data=b'{"port": 8080}\n') is None
    assert await doubt(write, data=None) is None
    assert await doubt(write, data=b"") is None
    assert await doubt(write, data=b"\x7fELF\0") is None


async def test_quotes_that_were_only_shown_are_not_written() -> None:
    write = WriteFile(path="rows.txt", content="'6'")
    before = done(Shell(command="wc -l < a > rows.txt"))
    assert "holds exactly 6 already" in (await doubt(write, before, data=b"6\n") or "")
    assert await doubt(write, before, data=b"7\n") is None
    assert await doubt(WriteFile(path="rows.txt", content="'"), before, data=b"6\n") is None


async def test_a_long_file_is_shown_in_part() -> None:
    words = await doubt(WriteFile(path="a.txt", content="x"), data=b"line\n" * 1000)
    assert words is not None
    assert len(words) < writing.MAX_REPLACED_BYTES + 300


async def test_the_same_again_is_done() -> None:
    command = Shell(command="grep '[ERROR]' app.log")
    assert await doubt(command, done(command, Refused(reason="..."))) is None
    assert await doubt(command, done(command)) is not None


async def test_a_sandbox_that_cannot_say_is_no_reason() -> None:
    class Slow(MemorySandbox):
        async def exec(self, *_: object, **__: object) -> ExecResult:
            raise ActionFailed("too slow")

    assert await before.doubt(WriteFile(path="a", content="b"), "", (), (), Slow()) is None


async def test_in_a_run_it_is_not_done_and_the_bot_is_told() -> None:
    bad, good = "grep '[ERROR]' a.log", "grep -F '[ERROR]' a.log"
    sandbox = MemorySandbox(commands={good: "2026 [ERROR] x\n", bad: "all lines\n"})
    made = Bench([say("shell", command=bad), say("shell", command=good), say("finish", answer="done")], sandbox)
    await made.run()
    assert made.script.requests[1].messages[-1].content.endswith("Run this instead: grep -F '[ERROR]' a.log")
    assert [event.action.action.command for event in made.shown if event.type == "action_started"] == [bad, good]  # type: ignore[union-attr]
    assert "all lines" not in str(made.shown)


async def test_a_run_without_advice_does_what_it_is_told() -> None:
    bad = "grep '[ERROR]' a.log"
    sandbox = MemorySandbox(commands={bad: "all lines\n", "wc x": 1})
    looked = [say("shell", command=bad), say("shell", command="wc x")]
    made = Bench([*looked, say("finish", answer="done")], sandbox)
    await made.run(started().model_copy(update={"advice": False}))
    assert made.sandbox.ran == [bad, "wc x"]
    assert "all lines" in made.script.requests[1].messages[-1].content


@pytest.mark.parametrize("word", ["grep [ERROR ", "mv $a ", "awk $1 ", "wc -l ", "find . -exec {} "])
async def test_a_hostile_length_costs_nothing(word: str) -> None:
    long = word * 100_000
    action = JsonAnswers().read(ModelAnswer(content=say("shell", command=long)), ("shell",)).steps[0].action
    assert await doubt(action) is None
    assert await doubt(WriteFile(path="a.txt", content="$(" * 300_000)) is None
    assert after.of_command(long, CommandOutput(exit_code=1)) == ""
    assert not searches.found_nothing(long, CommandOutput(exit_code=1))
