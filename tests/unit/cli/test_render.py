"""A run in events becomes a terminal session, and nothing hostile in it reaches the terminal."""

import io
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from stockade.cli.ui.render import Renderer
from stockade.core.actions import (
    Answer,
    EditFile,
    Failed,
    FileContent,
    FileWritten,
    Finish,
    Observation,
    ReadFile,
    Refused,
    Shell,
    Step,
    ToolCall,
    ToolResult,
    Unknown,
    WriteFile,
)
from stockade.core.budget import Budget
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    AnswerUnreadable,
    ChangesApplied,
    ChangesDiscarded,
    CheckFinished,
    HistoryCompacted,
    MessageInjected,
    ModelAnswered,
    NetworkRequested,
    RunEvent,
    RunFinished,
    RunStarted,
    SandboxStarted,
    SelfConfigChanged,
)
from stockade.core.messages import ModelAnswer, Sampling, Usage
from stockade_sandbox.policy import FolderRule, Network, Policy
from stockade_sandbox.results import Chunk, CommandOutput
from tests.support.scale import scaled

SGR = re.compile("\x1b\\[[0-9;]*m")


def started(text: str = "demo") -> RunStarted:
    return RunStarted(
        at=0, version="0", run_id="r1", task=text, bot=text, model=text, answers="json", sandbox=text,
        policy=Policy(folders=(FolderRule(host=f"/{text}"),), network=Network(mode="allow", hosts=(text,))),
        budget=Budget(), system_prompt=text,
    )  # fmt: skip


def output(*chunks: Chunk, exit_code: int = 0, cwd: str = "/workspace", timed_out: bool = False) -> CommandOutput:
    return CommandOutput(exit_code=exit_code, chunks=chunks, cwd=cwd, timed_out=timed_out, duration_s=2)


def shown(*events: RunEvent, colour: bool = False, whole: bool = False, answer: bool = False) -> str:
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=colour, color_system="truecolor" if colour else None, width=200, highlight=False
    )
    renderer = Renderer(console, whole=whole, show_answer=answer)
    for event in events:
        renderer.event(event)
    renderer.close()
    return file.getvalue()


def command(text: str, result: Observation) -> tuple[RunEvent, ...]:
    step = Step(action=Shell(command=text))
    return (
        ActionStarted(at=1, turn=1, step=0, action=step),
        ActionFinished(at=2, turn=1, step=0, observation=result),
    )


def test_a_command_reads_like_a_shell_session() -> None:
    listing = output(Chunk.of("stdout", b"a.py\n"), Chunk.of("stderr", b"oh\n"), cwd="/workspace/src")
    text = shown(
        started(),
        AnswerUnderstood(at=1, turn=1, answer=Answer(thought="Let me look.", steps=(Step(action=Finish(answer="")),))),
        *command("cd src; ls", listing),
        *command("false", output(exit_code=1, cwd="/workspace/src")),
    )
    assert "Let me look.\n/workspace $ cd src; ls\na.py\noh\n/workspace/src $ false\n[exit 1]\n" in text


def test_the_header_names_bot_model_sandbox_folder_and_network() -> None:
    event = started("demo").model_copy(update={"policy": Policy(folders=(FolderRule(host="/demo", mode="ro"),))})
    assert shown(event).splitlines()[0] == "stockade demo · demo · demo · /demo (ro) · no network"


def test_streams_are_shown_in_order_of_arrival() -> None:
    chunks = [Chunk.of("stdout", b"1"), Chunk.of("stderr", b"2"), Chunk.of("stdout", b"3\n")]
    assert "\n123\n" in shown(started(), *command("x", output(*chunks)))
    assert "1\x1b[31m2\x1b[0m3" in shown(started(), *command("x", output(*chunks)), colour=True)


def test_long_output_is_clipped_on_the_terminal_and_whole_when_asked() -> None:
    many = Chunk.of("stdout", "".join(f"line {number}\n" for number in range(100)).encode())
    events = (started(), *command("seq", output(many)))
    assert "[... 60 lines not shown ...]" in shown(*events)
    assert "line 50\n" not in shown(*events)
    assert "line 50\n" in shown(*events, whole=True)


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (FileWritten(path="x.txt", size=12, lines=3, lines_before=1, size_before=4), "x.txt: 1 line became 3."),
        (FileContent(path="x", text="hello\n", first=1, last=1, total=1), "hello\n[lines 1 to 1 of 1 of x]"),
        (Failed(message="x: File not found"), "x: File not found"),
        (Refused(reason="not allowed"), "[not run: not allowed]"),
        (Unknown(), "may or may not have run"),
        (ToolResult(status="data", text="42"), "42"),
        (output(timed_out=True, exit_code=124), "[timed out after 2 s]\n[exit 124]"),
    ],
)
def test_each_observation_has_its_words(observation: Observation, words: str) -> None:
    assert words in shown(started(), *command("x", observation))


def test_the_end_sums_up() -> None:
    answer = ModelAnswer(content="", usage=Usage(prompt_tokens=100, completion_tokens=20), duration_s=4)
    usage = Usage(prompt_tokens=100, cached_tokens=75, completion_tokens=20)
    text = shown(
        started(),
        ModelAnswered(at=1, turn=1, answer=answer),
        RunFinished(at=9, status="stopped", reason="turns", detail="1 of 1", turns=1, usage=usage, answer="42"),
        answer=True,
    )
    assert "\n42\n" in text
    assert text.splitlines()[-1] == (
        "stopped (turns: 1 of 1) · 1 turn · 9.0 s · 100 prompt tokens (75% cached) · 20 answer tokens · 5.0 tokens/s"
    )


def test_requests_are_shown_and_counted() -> None:
    text = shown(
        started(),
        NetworkRequested(at=1, host="pypi.org", port=443, method="CONNECT", verdict="allowed", status=200, bytes_up=7),
        NetworkRequested(
            at=1, host="x.org", port=80, method="GET", verdict="refused", reason="not on the list", count=3
        ),
        RunFinished(at=9, status="done", reason="finish"),
    )
    assert "[network: CONNECT pypi.org:443: 200, 7 bytes up, 0 down]\n" in text
    assert "[network refused: GET x.org:80 (3 times): not on the list]\n" in text
    assert " · 1 request, 3 refused" in text.splitlines()[-1]


def test_what_was_refused_is_told_once_more_at_the_end_with_the_flag_that_allows_it() -> None:
    def refused(rule: str, count: int = 1) -> NetworkRequested:
        return NetworkRequested(at=1, host="x", port=443, method="DNS", verdict="refused", allow=rule, count=count)

    end = RunFinished(at=9, status="done", reason="finish")
    lines = shown(started(), refused("api.segment.io", 11), refused("api.segment.io"), end).splitlines()
    assert lines[-2] == "refused: api.segment.io (12)  allow with --net api.segment.io"
    rules = ("a.org", "[fd00::1]:8443", "b.org", "b.org", "[2J;reboot", "[2J;reboot", "a.org", "a.org")
    lines = shown(started(), *(refused(rule) for rule in rules), end).splitlines()
    assert lines[-2].startswith("refused: a.org (3), b.org (2), ")
    assert "" not in lines[-2]
    assert lines[-2].split("  allow with --net ")[1].startswith("'a.org,b.org,")
    assert " and 1 more  allow" in lines[-2]
    assert not any("allow with" in line for line in shown(started(), refused(""), end).splitlines())


def every_event(text: str) -> list[RunEvent]:
    """One of each, with `text` wherever text can stand."""
    noise = output(Chunk.of("stdout", text.encode()), Chunk.of("stderr", text.encode()), exit_code=1, cwd=f"/{text}")
    actions = (
        Shell(command=text), ReadFile(path=text), WriteFile(path=text, content=text),
        EditFile(path=text, old=f"-{text}", new=text), ToolCall(name=text, arguments={text: text}),
    )  # fmt: skip
    observations: tuple[Observation, ...] = (
        noise, FileContent(path=text, text=text, first=1, last=1, total=1), FileWritten(path=text, size=1),
        Failed(message=text), ToolResult(status="error", text=text), Refused(reason=text),
    )  # fmt: skip
    steps = tuple(Step(action=action, comment=text) for action in actions)
    return [
        started(text),
        SandboxStarted(at=0, backend=text),
        ModelAnswered(at=0, turn=1, answer=ModelAnswer(content=text)),
        AnswerUnreadable(at=0, turn=1, attempt=1, message=text),
        AnswerUnderstood(at=0, turn=1, answer=Answer(thought=text, steps=steps)),
        *(ActionStarted(at=0, turn=1, step=0, action=step) for step in steps),
        *(ActionFinished(at=0, turn=1, step=0, observation=observation) for observation in observations),
        MessageInjected(at=0, turn=1, source=text, text=text),
        HistoryCompacted(at=0, turn=1, before_turn=1),
        NetworkRequested(at=0, host=text, port=80, method=text, verdict="refused", reason=text),
        NetworkRequested(at=0, host=text, port=80, method=text, verdict="allowed", reason=text, count=2),
        CheckFinished(at=0, turn=1, command=text, passed=False, observation=noise),
        RunFinished(at=0, status="failed", reason="bug", detail=text, answer=text),
        ChangesApplied(at=0, paths=(text,)),
        ChangesDiscarded(at=0),
    ]


ATTACKS = ("\x1b[2J", "\x1b]8;;http://x\x07", "\x9b1m", "\r", "\x08", "\u202e", "\u200b", "[red]", ":bug:")
HOSTILE = st.lists(st.one_of(st.text(st.characters(codec="utf-8"), max_size=8), st.sampled_from(ATTACKS)), max_size=8)


@settings(deadline=None, max_examples=scaled(60))
@given(HOSTILE.map("".join))
def test_nothing_hostile_reaches_the_terminal(text: str) -> None:
    written = SGR.sub("", shown(*every_event(text), colour=True, answer=True))
    for bad in ("\x1b", "\x9b", "\r", "\x08", "\u202e", "\u200b", "\x00", "\x7f"):
        assert bad not in written


def test_a_check_that_was_ended_names_the_flag() -> None:
    ended = CommandOutput(exit_code=124, timed_out=True, duration_s=600.2)
    check = CheckFinished(at=0, turn=1, command="make test", passed=False, observation=ended)
    assert shown(started(), check).splitlines()[-3:] == [
        "[timed out after 600 s]", "[exit 124]", "[check failed: see --command-timeout]",
    ]  # fmt: skip
    failed = replace(ended, timed_out=False, exit_code=1)
    assert "[check failed]" in shown(started(), check.model_copy(update={"observation": failed}))


def test_markup_is_only_text() -> None:
    assert "[red]x[/red]" in shown(started(), *command("[red]x[/red]", output(Chunk.of("stdout", b"[red]x[/red]"))))


def test_a_call_of_a_tool_does_not_look_like_a_command_of_the_same_words() -> None:
    actions = Shell(command='pay {"n": 1}'), ToolCall(name="pay", arguments={"n": 1}), ReadFile(path="a")
    text = shown(started(), *(ActionStarted(at=0, turn=1, step=0, action=Step(action=one)) for one in actions))
    assert text.splitlines()[-3:] == ['/workspace $ pay {"n": 1}', '> pay {"n": 1}', "> read_file a"]


def test_what_is_said_to_the_bot_is_not_said_to_the_person() -> None:
    nudged = MessageInjected(at=1, turn=2, source="loop", text="You are going round.")
    lines = shown(started(), nudged).splitlines()
    assert "to the bot [loop]: You are going round." in lines


def test_what_a_bot_sets_itself_is_said_where_it_changes() -> None:
    warm = Sampling(temperature=1.0)
    text = shown(
        started(),
        SelfConfigChanged(at=1, turn=1, prompt="x", sampling=warm),
        SelfConfigChanged(at=2, turn=2, goal="learn\x1b[2J", prompt="x", sampling=warm),
        SelfConfigChanged(at=3, turn=3, prompt="xy", sampling=warm, refused=("goal: too long",)),
    )
    assert text.splitlines()[-6:] == [
        "own prompt: 1 character",
        "sampling: temperature 1.0",
        "goal: learn\\x1b[2J",
        "goal: as it began",
        "own prompt: 2 characters",
        "[not taken: goal: too long]",
    ]


@pytest.mark.parametrize("driver", ["coder", "gone", "python:X"])
def test_a_run_whose_bot_can_tell_nothing_of_it_is_drawn_as_every_other(driver: str) -> None:
    text = shown(started().model_copy(update={"driver": driver}), *command("x", output(Chunk.of("stdout", b"y\n"))))
    assert text.endswith("/workspace $ x\ny\n")
