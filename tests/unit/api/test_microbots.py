"""Microbots' own signatures on the real sandbox, with scripted models."""

import json
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from stockade.core.actions import Finish
from stockade.core.errors import SandboxDied, UsageError
from stockade.microbots import (
    LLM,
    AgentBoss,
    Bot,
    CmdReturn,
    Environment,
    LLMAskResponse,
    LogAnalysisBot,
    MicroBot,
    Mount,
    ReadingBot,
    ToolDefinition,
    WritingBot,
)
from stockade.testing import ScriptedModel, say
from stockade_sandbox import Sandbox
from tests.support.fake_openai import FakeOpenAI, says


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE", "CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "demo"
    place.mkdir()
    (place / "data.csv").write_text("a,b\n1,2\n")
    return place


def shell(command: str) -> str:
    return say("shell", command=command)


DONE = say("finish", answer="done")


def test_a_writing_bot_has_written_when_it_ends(folder: Path) -> None:
    model = ScriptedModel([shell("pwd > where; echo x > x"), DONE])
    result = WritingBot(model=model, folder_to_mount=str(folder)).run("Write", timeout_in_seconds=60)
    assert (result.status, result.result, result.error) == (True, "done", None)
    assert (folder / "where").read_text() == "/workdir/demo\n"
    assert [one.who for one in result.log] == ["user", "model", "model", "sandbox", "model", "model"]
    assert (result.log[0].text, result.log[-1].action) == ("Write", Finish(answer="done"))
    assert result.run is not None
    assert sorted(result.run.undo()) == ["/workdir/demo/where", "/workdir/demo/x"]
    assert [path.name for path in folder.iterdir()] == ["data.csv"]


def test_what_would_run_here_later_is_not_applied_and_that_is_said(folder: Path) -> None:
    model = ScriptedModel([shell("echo x > x; echo evil > .envrc"), DONE])
    result = WritingBot(model=model, folder_to_mount=folder).run("Write")
    assert result.status
    assert "not applied: .envrc" in (result.error or "")
    assert (folder / "x").exists()
    assert not (folder / ".envrc").exists()


@pytest.mark.parametrize("bot", [ReadingBot, Bot])
def test_a_reading_bot_cannot_write(folder: Path, bot: type[Bot]) -> None:
    more = {} if bot is ReadingBot else {"Bot_type": "CUSTOM", "permission": "READ_ONLY"}
    model = ScriptedModel([shell("touch x 2>/dev/null || echo refused; cat data.csv"), DONE])
    assert bot(model=model, folder_to_mount=str(folder), **more).run("Read").status  # type: ignore[arg-type]
    assert "refused" in model.requests[-1].messages[-1].content
    assert not (folder / "x").exists()


def test_additional_mounts_and_places(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("seen\n")
    main = Mount(str(folder), "/code", "READ_WRITE")
    mounts = [
        Mount(tmp_path / "notes.txt", "/var/notes/", mount_type="copy"),
        Mount(tmp_path / "notes.txt", "/opt/n.txt", mount_type="copy"),
    ]
    model = ScriptedModel([shell("cat /var/notes/notes.txt /opt/n.txt > both; pwd"), DONE])
    assert MicroBot(model=model, folder_to_mount=main).run("Read", mounts).status
    assert (folder / "both").read_text() == "seen\nseen\n"
    with pytest.raises(ValueError, match="Failed to copy additional mount"):
        MicroBot(model=model).run("x", [Mount("/no/such", "/x", mount_type="copy")])
    with pytest.raises(UsageError, match="Only MOUNT"):
        MicroBot(model=model, folder_to_mount=Mount(folder, "/x", mount_type="copy"))
    with pytest.raises(ValueError, match=r"sandbox_path must be an absolute path\. Given: x"):
        Mount(folder, "x")


def test_a_log_is_where_microbots_has_it(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "build.log").write_text("error 7\n")
    model = ScriptedModel([shell("cat /var/log/build.log"), DONE])
    bot = LogAnalysisBot(model=model, folder_to_mount=str(folder))
    assert bot.run(str(tmp_path / "build.log"), user_prompt="yesterday it worked").status
    assert "The log is /var/log/build.log." in model.requests[0].messages[1].content
    assert "error 7" in model.requests[-1].messages[-1].content


def test_a_boss_and_bounds_in_its_words(folder: Path) -> None:
    looks = [shell(f"echo {number}") for number in range(9)]
    result = AgentBoss(model=ScriptedModel(looks), folder_to_mount=folder).run("look", max_iterations=2)
    assert (result.status, result.error) == (False, "Max iterations 2 reached")
    slow = ScriptedModel([shell("sleep 60")])
    result = ReadingBot(model=slow, folder_to_mount=folder).run("look", timeout_in_seconds=1)
    assert result.error == "Timeout of 1 seconds reached"
    with pytest.raises(ValueError, match="max_iterations must be greater than 0"):
        ReadingBot(model=slow, folder_to_mount=folder).run("look", max_iterations=0)


def test_an_environment_starts_by_itself_and_is_shared(folder: Path) -> None:
    box = Environment(folder_to_mount=str(folder), permission="READ_WRITE")
    done = box.execute("echo out; echo err >&2; x=1; (exit 3)")
    assert (done, done.output, done.error) == (CmdReturn(3, "out\n", "err\n"), "out\n", "err\n")
    assert box.execute("sleep 60", timeout=0.3).return_code == 124
    model = ScriptedModel([shell("echo $x > x; x=2"), DONE])
    assert Bot(model=model, environment=box).run("Set").status
    assert box.execute("echo $x; pwd", sensitive=True).output == "2\n/workdir/demo\n"
    assert not (folder / "x").exists()
    box.kill()
    box.stop()
    assert (folder / "x").read_text() == "1\n"
    with pytest.raises(SandboxDied, match="not running"):
        box.execute("true")


def test_its_permission_is_held(folder: Path) -> None:
    with Environment(folder, "READ_ONLY") as box:
        assert box.execute("touch a").return_code != 0
        assert box.execute("mount -o remount,rw /workdir/demo").return_code != 0
    with Sandbox(folder) as plain:
        assert Bot(model=ScriptedModel([shell("touch a"), DONE]), environment=plain).run("x").status
    assert [path.name for path in folder.iterdir()] == ["data.csv"]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"model": "gpt"}, ValueError, "format <provider>/<model_name>"),
        ({"model": {"provider": "openai"}}, ValueError, "format <provider>/<model_name>"),
        ({"permission": "WRITE"}, UsageError, "no permission 'WRITE'"),
        ({"Bot_type": "SINGING"}, UsageError, "SINGING"),
        ({"token_provider": "secret"}, UsageError, "token_provider is a function"),
        ({"additional_tools": [7]}, UsageError, "7 is no tool"),
        ({"max_itterations": 7}, UsageError, "max_itterations"),
    ],
)
def test_mistakes_are_named(folder: Path, given: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Bot(**{"folder_to_mount": folder, **given})  # type: ignore[arg-type]


def test_a_tool_needs_no_name(folder: Path) -> None:
    tool = ToolDefinition(verification_command="true", usage_instructions="`hello` says hello.")
    assert tool.name.startswith("tool-")
    assert tool.name == ToolDefinition(verification_command="true", usage_instructions="`hello` says hello.").name
    model = ScriptedModel([DONE])
    assert Bot(model=model, additional_tools=[tool]).run("x").status
    assert "`hello` says hello." in model.requests[0].messages[0].content
    for wrong in ({"installation_command": 7}, {"name": "a b"}, {"instal": "x"}):
        with pytest.raises(UsageError, match="this is no tool: "):
            ToolDefinition(**wrong)


def form(command: str, thoughts: str = "t", **more: object) -> str:
    return json.dumps({"task_done": not command, "thoughts": thoughts, "command": command, **more})


def test_a_model_answers_in_microbots_form(tmp_path: Path) -> None:
    answers = [form("ls"), "no json", f"```json\n{form('', 'done')}\n```", *["{}"] * 3, form("ls", task_done=True)]
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps({"content": answer}) + "\n" for answer in answers))
    llm = LLM("Be brief.", f"scripted/{script}")
    assert llm.ask("Where am I?") == LLMAskResponse(task_done=False, thoughts="t", command="ls")
    assert llm.ask("Output: /").thoughts == "done"
    assert [one.role for one in llm.messages] == ["system", *["user", "assistant"] * 3]
    assert llm.messages[0].content.startswith("Be brief.")
    assert "LLM_RES_ERROR" in llm.messages[-2].content
    with pytest.raises(ValueError, match="does not answer in the form: `command` is empty"):
        llm.ask("And?")
    llm.clear_history()
    assert [one.role for one in llm.messages] == ["system"]


@pytest.mark.parametrize("token", ["", None])
def test_a_provider_that_gives_no_token(folder: Path, token: str | None) -> None:
    bot = ReadingBot(model="openai/gpt", folder_to_mount=folder, token_provider=lambda: token)  # type: ignore[arg-type,return-value]
    with pytest.raises(UsageError, match="gave no token"):
        bot.run("x")


def test_a_token_is_asked_for_at_each_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = iter(["first", "second"])
    monkeypatch.setenv("OPENAI_API_KEY", "not-this-one")

    async def work() -> list[str]:
        async with FakeOpenAI([says(DONE), says(DONE)]) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
            model = {"provider": "openai", "model": "gpt"}
            bot = ReadingBot(model=model, folder_to_mount=folder, token_provider=lambda: next(tokens))
            for _ in range(2):
                assert (await to_thread.run_sync(bot.run, "x")).status
            return [one.headers["authorization"] for one in server.asked if one.method == "POST"]

    assert anyio.run(work) == ["Bearer first", "Bearer second"]
