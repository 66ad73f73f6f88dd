"""`--best-of N` by the real command: real sandboxes, and a model server that gives each candidate other answers."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from anyio import to_thread
from anyio.streams.buffered import BufferedByteReceiveStream

from stockade import WritingBot
from stockade.testing import say
from tests.cli.conftest import DONE, PATIENCE_S, Ended, Stage
from tests.support.fake_openai import Asked, FakeOpenAI, Reply, says
from tests.support.tmux import Screen

pytestmark = pytest.mark.anyio
CHECK = "test $(cat count.txt) = 3"
WAIT = "while ! test -e stop; do sleep 0.1; done"
"""Without an end."""


def wrote(text: str) -> str:
    return say("shell", thought="Count.", command=f"echo {text} > count.txt")


def done(answer: str) -> str:
    return say("finish", answer=answer)


class Candidates:
    """A server whose k-th conversation gets the k-th list of answers, and the last one of it again and again."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers, self.begun = answers, 0
        self.server = FakeOpenAI(refuses=self._reply)
        self.sampled = list[tuple[Any, Any]]()
        self.acted = anyio.Event()
        """Each has done its first step, and was answered to that."""

    def _reply(self, asked: Asked) -> Reply | None:
        said = [one["content"] for one in asked.body["messages"] if one["role"] == "assistant"]
        if not said:
            self.sampled.append((asked.body.get("temperature"), asked.body.get("seed")))
            self.begun += 1
            return says(self.answers[self.begun - 1][0])
        if len(self.server.questions) >= 2 * len(self.answers):
            self.acted.set()
        mine = next(row for row in self.answers if row[0] == said[0])
        return says(mine[min(len(said), len(mine) - 1)])

    @property
    def prompt_tokens(self) -> int:
        """Of all answers, 10 each."""
        return 10 * len(self.server.questions)


async def call(stage: Stage, *arguments: str, server: FakeOpenAI | None = None) -> Ended:
    where = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-x"} if server else {}
    command = [sys.executable, "-m", "stockade.cli", *arguments]
    process = await anyio.run_process(command, check=False, env={**stage.environment(), **where})
    return Ended(process.returncode, process.stdout.decode(), process.stderr.decode())


def run(stage: Stage, *flags: str) -> tuple[str, ...]:
    return ("run", "count", "--folder", str(stage.demo), "--model", "openai/x", "-o", "answers=json", *flags)


async def test_the_first_that_passes_is_taken_and_the_others_are_stopped(stage: Stage) -> None:
    """One never ends, one is wrong, the third passes: its files are the run's, and each is on record."""
    slow, wrong = (wrote("2"), say("shell", thought="Wait.", command=WAIT)), (wrote("4"), done("4"))
    right = (wrote("3"), done("3 lines"))
    async with (candidates := Candidates(slow, wrong, right)).server as server:
        flags = ("--best-of", "3", "--check", CHECK, "--apply", "--json")
        ended = await call(stage, *run(stage, *flags), server=server)
    assert ended.status == 0, ended.err
    result = ended.result
    assert (result["status"], result["verified"], result["answer"]) == ("done", True, "3 lines")
    assert stage.tree() == {"data.csv": b"a\nb\nc\n", "count.txt": b"3\n"}
    by_end = {one["answer"] if one["chosen"] else one["reason"]: one for one in result["candidates"]}
    assert by_end.keys() >= {"3 lines", "user"}
    assert [one["run"] for one in result["candidates"]] == [f"{result['run']}.{number}" for number in (1, 2, 3)]
    assert by_end["user"]["detail"].endswith("passed the check before")
    total = sum(one["usage"]["prompt_tokens"] for one in result["candidates"])
    assert result["usage"]["prompt_tokens"] == total <= candidates.prompt_tokens
    listed = await call(stage, "runs", "list", "--json")
    rows = [json.loads(line)["run_id"] for line in listed.out.splitlines()]
    assert sorted(rows) == sorted([result["run"], *(one["run"] for one in result["candidates"])])
    shown = await call(stage, "runs", "show", f"{result['run']}.2")
    assert shown.status == 0, shown.err
    undone = await call(stage, "undo", result["run"])
    assert undone.status == 0, undone.err
    assert stage.tree() == {"data.csv": b"a\nb\nc\n"}


async def test_when_none_passes_nothing_is_taken_and_each_is_named(stage: Stage) -> None:
    async with Candidates((wrote("4"), done("4")), (wrote("5"), done("5"))).server as server:
        ended = await call(stage, *run(stage, "--best-of", "2", "--check", CHECK, "--apply", "--json"), server=server)
    assert ended.status == 1, ended.err
    result = ended.result
    assert (result["reason"], result["verified"], result["changes"]) == ("check_failed", False, [])
    assert "no candidate passes the check" in result["detail"]
    assert f"stockade diff {result['run']}.1" in result["detail"]
    assert stage.tree() == {"data.csv": b"a\nb\nc\n"}


async def test_without_a_check_nobody_chooses_and_the_words_say_how(stage: Stage) -> None:
    """A candidate is applied by its name, and no other of them is what `apply` takes by itself."""
    async with Candidates((wrote("3"), done("3 lines")), (wrote("4"), done("4 lines"))).server as server:
        ended = await call(stage, *run(stage, "--best-of", "2", "--apply", "--json"), server=server)
    assert ended.status == 3, ended.err
    result = ended.result
    assert (result["status"], result["reason"]) == ("stopped", "user")
    assert f"stockade apply {result['run']}.1" in result["detail"]
    assert sorted(one["answer"] for one in result["candidates"]) == ["3 lines", "4 lines"]
    assert [one["changes"] for one in result["candidates"]] == [["count.txt"]] * 2
    assert not any(one["chosen"] for one in result["candidates"])
    assert stage.tree() == {"data.csv": b"a\nb\nc\n"}
    newest = await anyio.run_process(
        [sys.executable, "-m", "stockade.cli", "apply"], check=False, env=stage.environment(), cwd=stage.demo
    )
    assert newest.returncode == 2
    removed = await call(stage, "runs", "rm", result["run"])
    assert (removed.status, "nobody decided on the changes" in removed.err) == (2, True)
    assert "nobody decided on its changes" in (await call(stage, "runs", "prune", "--keep", "0", "-y")).err
    wanted = next(one["run"] for one in result["candidates"] if one["answer"] == "4 lines")
    applied = await call(stage, "apply", wanted)
    assert applied.status == 0, applied.err
    assert stage.tree()["count.txt"] == b"4\n"


async def test_limits_of_cost_and_tokens_are_of_all_together(stage: Stage) -> None:
    """Each answer is 12 tokens: two candidates have used up 60 after five, where one alone would go on to the end."""
    long = [say("shell", thought="Look.", command=f"echo {number}") for number in range(8)]
    rows = [[say("shell", thought="Begin.", command=f"echo {name}"), *long, done(name)] for name in "ab"]
    async with (candidates := Candidates(*rows)).server as server:
        ended = await call(stage, *run(stage, "--best-of", "2", "--max-tokens", "60", "--json"), server=server)
    assert ended.status == 3, ended.err
    assert {one["reason"] for one in ended.result["candidates"]} == {"tokens"}
    assert 5 <= len(candidates.server.questions) <= 6
    assert "with all bots" in ended.result["candidates"][0]["detail"]


@pytest.mark.parametrize(
    ("flags", "seeds"),
    [((), {None}), (("-o", "seed=7"), {7, 8}), (("-o", "seed=7", "-o", "temperature=0"), {7, 8})],
)
async def test_candidates_are_sampled_otherwise_as_far_as_the_user_lets_them(
    stage: Stage, flags: tuple[str, ...], seeds: set[int | None]
) -> None:
    """A server on this machine is asked greedily where nobody says more: that is what the first is."""
    async with (candidates := Candidates([done("a")], [done("b")])).server as server:
        await call(stage, *run(stage, "--best-of", "2", *flags, "--json"), server=server)
    assert {seed for _, seed in candidates.sampled} == seeds
    assert {warm for warm, _ in candidates.sampled} == ({0.0} if "temperature=0" in flags else {0.0, 0.8})


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--approve", "ask"), "nobody can be asked about the actions of several at once"),
        (("--folder", "{demo}:rw"), "every candidate would write to"),
        (("--best-of", "0"), "--best-of"),
        (("--best-of", "33"), "--best-of"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_begins(stage: Stage, flags: tuple[str, ...], words: str) -> None:
    given = [flag.format(demo=stage.demo) for flag in flags]
    ended = stage.call("run", "count", "--model", stage.script(DONE), "--best-of", "2", *given, folder=stage.demo)
    assert ended.status == 2
    assert words in ended.err
    assert stage.left_behind() == []


async def killed(stage: Stage, candidates: Candidates, how: signal.Signals, *flags: str) -> str:
    """The id of a run that was sent the signal when each candidate had done its first step."""
    command = [sys.executable, "-m", "stockade.cli", *run(stage, *flags, "--json")]
    where = {"OPENAI_BASE_URL": candidates.server.base_url, "OPENAI_API_KEY": "sk-x"}
    process = await anyio.open_process(
        command, env={**stage.environment(), **where}, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    async with process:
        assert process.stdout is not None
        first = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1 << 20)
        await candidates.acted.wait()
        process.send_signal(how)
        await process.wait()
    return str(json.loads(first)["run_id"])


async def states(stage: Stage) -> dict[str, str]:
    listed = await call(stage, "runs", "list", "--json")
    return {one["run_id"]: one["status"] for one in map(json.loads, listed.out.splitlines())}


async def test_after_a_kill_the_record_says_so_and_the_candidates_go_on(stage: Stage) -> None:
    wait = say("shell", thought="Wait.", command="sleep 3")
    async with (
        candidates := Candidates((wrote("3"), wait, done("3")), (wrote("4"), wait, done("4")))
    ).server as server:
        flags = ("--best-of", "2", "--check", CHECK)
        run_id = await killed(stage, candidates, signal.SIGKILL, *flags)
        assert await states(stage) == dict.fromkeys([run_id, f"{run_id}.1", f"{run_id}.2"], "interrupted")
        ended = await call(stage, "runs", "resume", run_id, "--apply", "--json", server=server)
    assert ended.status == 0, ended.err
    assert (ended.result["run"], ended.result["verified"], ended.result["answer"]) == (run_id, True, "3")
    assert candidates.begun == 2
    assert ended.result["usage"]["prompt_tokens"] <= candidates.prompt_tokens
    assert stage.tree()["count.txt"] == b"3\n"


async def test_ctrl_c_stops_all_of_them(stage: Stage) -> None:
    wait = say("shell", thought="Wait.", command=WAIT)
    async with (candidates := Candidates((wrote("3"), wait), (wrote("4"), wait))).server:
        run_id = await killed(stage, candidates, signal.SIGINT, "--best-of", "2")
    assert await states(stage) == dict.fromkeys([run_id, f"{run_id}.1", f"{run_id}.2"], "stopped")


async def test_a_user_chooses_on_a_terminal_and_decides_on_its_changes(stage: Stage) -> None:
    """What is no candidate is asked again; what was taken is gone on with as any run."""
    rows = (wrote("3"), done("3 lines")), (wrote("4"), done("4 lines"))
    async with Candidates(*rows).server as server:
        where = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-x"}
        command = list(run(stage, "--best-of", "2"))
        screen = Screen(stage.tmp_path, command, stage.demo, {**stage.environment(), **where}, PATIENCE_S, (200, 50))

        def choose() -> int:
            try:
                screen.until("Which candidate shall be taken?", "1 file changed:", "1 file changed:", "your answer")
                for answer in ("3 lines", "4 lines"):  # they begin at once: either is the first
                    screen.until("Which candidate shall be taken?", f"1 file changed: {answer}")
                screen.type("7\r")
                screen.until("There is no candidate 7 to take.", "Which candidate shall be taken?")
                screen.type("2\r")
                screen.until("Apply to")
                screen.type("y\r")
                return screen.status()
            finally:
                screen.close()

        assert await to_thread.run_sync(choose) == 0
    exported = await call(stage, "runs", "export", "last", "--format", "jsonl")
    events = [json.loads(line) for line in exported.out.splitlines()]
    if (chosen := next((event for event in events if event["type"] == "candidate_chosen"), None)) is None:
        run_id = events[0]["boss"]  # the newest is a candidate
        exported = await call(stage, "runs", "export", run_id, "--format", "jsonl")
        events = [json.loads(line) for line in exported.out.splitlines()]
        chosen = next(event for event in events if event["type"] == "candidate_chosen")
    assert chosen["run_id"].endswith(".2")
    (answer,) = {event["answer"] for event in events if event["type"] == "run_finished"}
    assert stage.tree()["count.txt"].decode().strip() == answer[0]


async def test_a_batch_tries_each_task_so_often_and_names_the_candidates(stage: Stage) -> None:
    tasks = stage.tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"id": "one", "task": "count", "folder": "demo", "check": CHECK}))
    flags = ("--model", "openai/x", "-o", "answers=json", "--best-of", "2", "--apply")
    slow = (wrote("2"), say("shell", thought="Wait.", command=WAIT))
    async with (candidates := Candidates(slow, (wrote("3"), done("3 lines")))).server as server:
        ended = await call(stage, "batch", "run", str(tasks), *flags, server=server)
    assert ended.status == 0, ended.err
    (line,) = map(json.loads, (stage.tmp_path / "tasks.results.jsonl").read_text().splitlines())
    assert (line["outcome"], line["applied"]) == ("solved", ["count.txt"])
    assert [one["run"] for one in line["candidates"]] == [f"{line['run']}.1", f"{line['run']}.2"]
    assert [one["verified"] for one in line["candidates"]].count(True) == 1
    assert 36 <= line["tokens"] <= 12 * len(candidates.server.questions)
    tasks.write_text(json.dumps({"id": "one", "task": "count", "folder": "demo"}))
    ended = await call(stage, "batch", "run", str(tasks), *flags)
    assert (ended.status, "of several candidates the check picks one" in ended.err) == (2, True)


async def test_a_file_of_a_bot_may_say_how_many(stage: Stage) -> None:
    bot = stage.tmp_path / "twice.toml"
    bot.write_text(f'name = "twice"\nsummary = "counts"\nprompt = "You count."\nbest_of = 2\ncheck = "{CHECK}"\n')
    async with (candidates := Candidates((wrote("4"), done("4")), (wrote("3"), done("3")))).server as server:
        ended = await call(stage, *run(stage, "--bot", str(bot), "--json"), server=server)
    assert (ended.result["answer"], len(ended.result["candidates"]), candidates.begun) == ("3", 2, 2), ended.err


async def test_python_has_it_and_a_sandbox_that_stays_up_has_not(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Candidates((wrote("4"), done("4")), (wrote("3"), done("3"))).server as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
        bot = WritingBot(folder=stage.demo, model="openai/x", answers="json", best_of=2, check=CHECK)
        result = await bot.arun("count")
        assert (result.verified, result.answer) == (True, "3"), result.error
        assert [change.path for change in result.changes] == ["count.txt"]
        async with bot:
            refused = await bot.arun("count")
        assert "sandboxes of their own" in str(refused.error)
