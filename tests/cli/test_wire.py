"""The prompt only grows, as it arrives at the server: each request begins with every byte of the one before it.

Up to the end of the messages, the array of tools included. With each bundled bot, natively and as JSON, while commands
fail, actions are refused, hooks speak, answers cannot be read and a finish is sent back. The exceptions are those that
are on record by name: compaction (the Shell bot's own too), and the Coder's fresh attempt.
"""

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest

from stockade.testing import say
from tests.cli.conftest import Ended, Stage
from tests.support.fake_openai import Asked
from tests.support.strong_model import Call, Turn, finish, shell, strong_model

HOOKS = """
[[hooks]]
name = "no-forbidden"
on = "before_action"
command = ["sh", "-c", "grep -q forbidden && echo '{\\"refuse\\": \\"it is forbidden\\"}' || :"]

[[hooks]]
name = "echo"
on = "after_action"
command = ["sh", "-c", "grep -q speak && echo '{\\"words\\": \\"the hook speaks\\"}' || :"]

[[hooks]]
name = "clock"
on = "before_turn"
command = ["sh", "-c", "grep -q '\\"turn\\": 2,' && echo '{\\"message\\": \\"two turns are over\\"}' || :"]
"""
FAILING = [shell("cat no-such-file; (exit 3)"), shell("false"), shell("echo forbidden"), shell("echo speak")]
SAME = [shell("cat data.csv")] * 4
BOTS = {
    "writing": [],
    "reading": [],
    "log-analysis": [],
    "planner": ["--ai-name", "A", "--ai-role", "a planner", "-y", "--continuous"],
    "shell": ["--no-intro", "--max-turns", "10"],
}
PROTOCOLS = pytest.mark.parametrize("answers", ["native", "json"])


def spelled(turns: Sequence[Turn], answers: str) -> list[Turn]:
    """In JSON one call a turn; words stay what they are."""
    if answers == "native":
        return list(turns)
    flat = [[one] if isinstance(one, str) else list(one) for one in turns]
    return [one if isinstance(one, str) else say(one.tool, **one.arguments) for turn in flat for one in turn]


def prompt(asked: Asked) -> tuple[bytes, object]:
    """The bytes up to the last message's end, and the tools."""
    text = asked.raw.decode()
    start = text.index('"messages":') + len('"messages":')
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[: end - 1].encode(), json.loads(text).get("tools")


def broken(turns: Sequence[Asked]) -> list[int]:
    """The requests, from 2, that do not begin with all of the one before."""
    prompts = [prompt(one) for one in turns]
    return [
        number
        for number, (before, after) in enumerate(pairwise(prompts), 2)
        if not after[0].startswith(before[0]) or after[1] != before[1]
    ]


def run(
    stage: Stage, answers: str, turns: Sequence[Turn], *arguments: str, window: int | None = None
) -> tuple[Ended, list[Asked]]:
    """`arguments`: the command, without what it needs for this model. What it says, and the requests."""
    model_flags = ("--json", "--model", "openai/strong", "-o", f"answers={answers}")
    with strong_model(spelled(turns, answers), window) as model, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", model.base_url)
        ended = stage.call(*arguments, *model_flags)
    assert ended.out, ended.err
    return ended, model.turns


@pytest.mark.parametrize("bot", BOTS)
@PROTOCOLS
def test_the_prompt_only_grows(stage: Stage, bot: str, answers: str) -> None:
    ending: list[Turn] = [[finish("not yet")], [shell("touch ok")], [finish("now")]]
    turns: list[Turn] = [FAILING, *[[one] for one in SAME], "{not readable", *ending]
    (stage.home / ".config" / "stockade").mkdir(parents=True)
    (stage.home / ".config" / "stockade" / "config.toml").write_text(HOOKS)
    command = {"shell": ["auto"], "planner": ["plan", "do it"]}.get(bot, ["run", "do it", "--bot", bot])
    place = ["--workspace" if bot == "shell" else "--folder", str(stage.demo)]
    check = ["--check", "test -e ok"] if bot in ("writing", "planner") else []
    ended, asked = run(stage, answers, turns, *command, *place, *check, *BOTS[bot])
    assert ended.events[0]["answers"] == answers
    folded = [event["turn"] for event in ended.events if event["type"] == "history_compacted"]
    assert broken(asked) == folded, "what it did four times in a row the Shell bot sees in short, once"
    assert len(folded) == (1 if bot == "shell" else 0)
    assert len(asked) >= (9 if check else 6), ended.err
    last = (asked[folded[0] - 2] if folded else asked[-1]).raw.decode()
    for words in ("it is forbidden", "the hook speaks", "two turns are over", "times in a row", "exit status 3"):
        assert words in last
    if check:
        assert (ended.status, ended.result["answer"]) == (0, "now"), ended.err
        assert "does not pass yet" in last


@PROTOCOLS
def test_of_a_boss_each_conversation_only_grows(stage: Stage, answers: str) -> None:
    helps: list[Turn] = [[shell("cat none")], [shell("ls")], [finish("seen")]]
    first, second = ([Call("sub_task", {"task": task})] for task in ("look", "look again"))
    turns = [[shell("ls")], first, *helps, [shell("false")], second, *helps, [shell("pwd")], [finish("all")]]
    ended, asked = run(stage, answers, turns, "run", "do it", "--bot", "boss", "--folder", str(stage.demo))
    assert ended.result["answer"] == "all", ended.err
    conversations: dict[str, list[Asked]] = {}
    for one in asked:
        conversations.setdefault(json.dumps(one.body["messages"][:2]), []).append(one)
    assert sorted(map(len, conversations.values())) == [3, 3, 6]
    assert [broken(each) for each in conversations.values()] == [[], [], []]


@PROTOCOLS
def test_of_a_browsing_bot_too(stage: Stage, answers: str) -> None:
    looks: list[Turn] = [[Call("browser_open", {"url": f"data:text/html,<p>{n}</p>"})] for n in range(3)]
    turns = [*looks, [Call("browser_click", {"ref": "e99"})], [Call("browser_snapshot", {})], [finish("seen")]]
    ended, asked = run(stage, answers, turns, "run", "look", "--bot", "browsing", "--net", "open")
    assert (ended.result["answer"], len(asked)) == ("seen", 6), ended.err
    assert broken(asked) == []


@PROTOCOLS
def test_of_a_bot_that_looks_at_pictures_too(stage: Stage, answers: str) -> None:
    """Without a network; each picture goes to the model once more with every request, as bytes on record."""
    page = "echo '<p style=font-size:9em>Seen</p>' > page.html"
    shot = Call("browser_screenshot", {})
    turns: list[Turn] = [
        [shell(page)], [Call("browser_open", {"url": "/workspace/page.html"})], [shot], [shot, shell("ls")],
        [finish("x")],
    ]  # fmt: skip
    ended, asked = run(stage, answers, turns, "run", "look", "--tool", "browser", "--tool", "shell")
    assert ended.result["answer"] == "x", ended.err
    assert broken(asked) == []
    urls = [part["image_url"]["url"] for message in json.loads(asked[-1].raw)["messages"]
            if isinstance(message["content"], list) for part in message["content"] if "image_url" in part]  # fmt: skip
    kept = [image["base64"] for event in ended.events if event["type"] == "action_finished"
            for image in event["observation"].get("images", ())]  # fmt: skip
    assert len(kept) == 2
    assert urls == [f"data:image/jpeg;base64,{one}" for one in kept]


@PROTOCOLS
def test_compaction_is_an_exception_on_record(stage: Stage, answers: str) -> None:
    turns: list[Turn] = [[shell(f"seq {n}00 {n}60")] for n in range(1, 30)]
    flags = ("--folder", str(stage.demo), "-o", "answer_tokens=200", "--max-turns", "40")
    ended, asked = run(stage, answers, [*turns, [finish("x")]], "run", "count", *flags, window=4096)
    assert ended.result["answer"] == "x", ended.err
    folded = [event["turn"] for event in ended.events if event["type"] == "history_compacted"]
    assert folded
    assert broken(asked) == sorted(set(folded))


def test_a_run_that_goes_on_begins_with_what_was_sent(stage: Stage) -> None:
    turns: list[Turn] = [[shell("ls")], [shell("false"), shell("pwd")], [shell("ls")]]
    _, before = run(stage, "native", turns, "run", "do it", "--folder", str(stage.demo), "--max-turns", "3")
    with strong_model([[shell("cat data.csv")], [finish("x")]]) as model, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", model.base_url)
        ended = stage.call("runs", "resume", "last", "--max-turns", "9", "--json")
        assert ended.result["answer"] == "x", ended.err
        assert broken([*before, *model.turns]) == []


def test_fresh_attempts_of_the_coder_are_exceptions_on_record(stage: Stage) -> None:
    bodies = ["return nothing_there", *(f"return a - {n}" for n in range(9))]
    programs = [f"### Requirements\nnone\n### Code\n```python\ndef add(a, b):\n    {body}\n```" for body in bodies]
    with strong_model(programs) as model, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", model.base_url)
        ended = stage.call("code", "add(1, 2) == 9", "--json", "--model", "openai/strong")
    sources = [event["source"] for event in ended.events if event["type"] == "message_injected"]
    assert sources[0] == "repair", ended.err
    assert "fresh start" in sources
    assert broken(model.turns) == [number for number, source in enumerate(sources, 2) if source != "repair"]
