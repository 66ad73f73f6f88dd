"""`stockade tool`, and components as tools of a bot, through the real command."""

import json
import shutil
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import Stage
from tests.support import wasm

PHRASE = "Something to echo"


@pytest.fixture
def echo(tmp_path: Path) -> str:
    return str(shutil.copy(str(wasm.ECHO), str(tmp_path / "echo.wasm")))


@pytest.mark.parametrize("answers", ["json", "use-tool"])
def test_the_sample_that_the_llama_cpp_agent_fails(stage: Stage, echo: str, answers: str) -> None:
    """Asked to echo "Something to echo" it answers "Something", and nobody looks (systems.md 002.2)."""
    spelled = {
        "json": (say("Echo", value=PHRASE), say("finish", answer=PHRASE)),
        "use-tool": (f"USE_TOOL: Echo, value={PHRASE}", f"USE_TOOL: finish, answer={PHRASE}"),
    }
    flags = ("--tool", echo, "--answers", answers, "--json")
    ended = stage.run(*spelled[answers], spelled[answers][-1], flags=flags)
    assert ended.result["status"] == "done", ended.err
    assert PHRASE in ended.result["answer"]
    finished = next(event for event in ended.events if event["type"] == "action_finished")
    assert finished["observation"] == {"kind": "tool", "status": "data", "text": PHRASE}


def test_a_tool_that_fails_is_told_to_the_bot_and_the_run_goes_on(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "evil.wasm"
    path.write_bytes(wasm.HOSTILE)
    path.with_suffix(".policy.yaml").write_text("limits: {timeout_s: 0.3}\ntools: {shell: {offered: false}}")
    calls = [say(f"evil_{name}") for name in ("spin", "crash", "huge", "bad_text")]
    done = say("finish", answer="all of them")
    ended = stage.run(*calls, done, done, flags=("--tool", str(path), "--json"))
    seen = [event["observation"] for event in ended.events if event["type"] == "action_finished"]
    assert [one["status"] for one in seen] == ["error"] * 4
    assert ended.result["status"] == "done"
    assert stage.left_behind() == []


def test_a_run_with_a_component_goes_on_and_not_with_another_in_its_place(stage: Stage, echo: str) -> None:
    done = say("finish", answer="done")
    first, second = say("Echo", value="one"), say("Echo", value="two more")
    script = stage.script(first, done, second, done, done)
    begun = stage.call("run", "echo", "--folder", str(stage.demo), "--model", script, "--tool", echo)
    assert begun.status == 0, begun.err
    went_on = stage.call("runs", "resume", "last", "Echo two more", "--json")
    assert went_on.status == 0, went_on.err
    seen = [event["observation"]["text"] for event in went_on.events if event["type"] == "action_finished"]
    assert seen == ["two more"]
    Path(echo).write_bytes(wasm.HOSTILE)
    Path(echo).with_suffix(".policy.yaml").write_text("tools: {shell: {offered: false}}")
    refused = stage.call("runs", "resume", "last", "Echo three")
    assert (refused.status, "is not what it was when the run began" in refused.err) == (2, True), refused.err


def test_run_prints_what_the_tool_runner_prints(stage: Stage, echo: str) -> None:
    ended = stage.call("tool", "run", echo, "--value", PHRASE)
    assert ended.status == 0, ended.err
    assert ended.out.splitlines() == [
        f"Component path: {echo}",
        "Tool metadata:",
        "Name: Echo",
        "Description: Echoes back the text that it is given",
        "Version: 0.1.0",
        "Parameters:",
        "  - value: The text to echo back (string)",
        "Executing tool...",
        f"[Success] Tool output: {PHRASE}",
    ]
    assert stage.left_behind() == []


def test_run_has_a_command_line_made_from_the_metadata(stage: Stage, echo: str) -> None:
    helped = stage.call("tool", "run", echo, "--help")
    assert "--value TEXT  The text to echo back  [required]" in helped.out
    missing = stage.call("tool", "run", echo)
    assert (missing.status, "--value" in missing.err) == (2, True)
    unknown = stage.call("tool", "run", echo, "--valeu", "x")
    assert (unknown.status, "valeu" in unknown.err) == (2, True)


def test_a_tool_that_fails_has_a_status_of_its_own(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "evil.wasm"
    path.write_bytes(wasm.HOSTILE)
    path.with_suffix(".policy.yaml").write_text("limits: {timeout_s: 0.3}\ntools: {shell: {offered: false}}")
    ended = stage.call("tool", "run", str(path), "spin")
    assert ended.status == 1
    assert ended.out.splitlines()[-1].startswith("[Error] Tool error: the tool did not end within 0.3 s")
    added = stage.call("tool", "run", "--json", str(path), "add", "--a", "40", "--b", "2")
    assert (added.status, json.loads(added.out)["text"]) == (0, "42")
    several = stage.call("tool", "run", str(path))
    assert (several.status, "say which one" in several.err) == (2, True)


def test_inspect_says_what_it_exports_and_may_do(stage: Stage, echo: str) -> None:
    shown = stage.call("tool", "inspect", echo)
    assert "world: llama-cpp:tool, version 0.1.0" in shown.out
    assert "asks for: nothing" in shown.out
    assert "granted: nothing" in shown.out
    found = json.loads(stage.call("tool", "inspect", "--json", echo).out)
    assert found["tools"][0]["spec"]["name"] == "Echo"
    assert "compiled" not in found


def test_list_has_names_and_components(stage: Stage, echo: str) -> None:
    listed = stage.call("tool", "list", str(Path(echo).parent))
    assert "shell" in listed.out
    assert f"{echo} component" in listed.out
    for place in ("below/deep", ".hidden", "node_modules/x"):
        (stage.tmp_path / "many" / place).mkdir(parents=True)
        (stage.tmp_path / "many" / place / "some tool.wasm").write_bytes(Path(echo).read_bytes())
    below = stage.call("tool", "list", "--json", str(stage.tmp_path / "many"))
    names = [one["name"] for one in below.events if one["kind"] == "component"]
    assert names == [str(stage.tmp_path / "many/below/deep/some tool.wasm")]
    called = stage.call("tool", "run", names[0], "--value", "with a blank in its name")
    assert (called.status, "with a blank in its name" in called.out) == (0, True), called.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("inspect", "no.wasm"), "cannot be read"),
        (("inspect", "/etc/passwd"), "must have a .wasm extension"),
        (("build", "no.py"), "there is no such file"),
        (("build", "no.go"), "nothing here builds .go"),
        (("list", "/no/such"), "no such folder"),
    ],
)
def test_mistakes_are_a_line_and_status_2(stage: Stage, arguments: tuple[str, ...], words: str) -> None:
    ended = stage.call("tool", *arguments)
    assert ended.status == 2
    assert words in ended.err
    assert "Traceback" not in ended.err
