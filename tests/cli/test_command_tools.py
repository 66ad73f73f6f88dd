"""Installed tools by the real command: there in the run and after it goes on, nothing left where it was cut."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import DONE, PATIENCE_S, Stage, descendants, gone, interrupt, watched

HI = "printf '#!/bin/sh\\necho hi there\\n' > /usr/local/bin/hi; chmod +x /usr/local/bin/hi"
USE = say("shell", command='hi; printf %s "$MY_API_KEY" | rev; echo "[$MY_API_KEY]"')


def tool(stage: Stage, **keys: object) -> str:
    path = stage.tmp_path / f"{keys['name']}.yaml"
    path.write_text(json.dumps(keys))
    return str(path)


def kept(stage: Stage) -> list[str]:
    folder = stage.home / ".cache/stockade/layers"
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock") if folder.exists() else []


def until_said(process: "subprocess.Popen[bytes]", words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line.decode():
            return
    raise AssertionError(f"{words!r} was never said")


def outputs(stage: Stage) -> list[str]:
    events = stage.call("runs", "show", "last", "--json").events
    found = [event["observation"] for event in events if event["type"] == "action_finished"]
    return ["".join(chunk["text"] for chunk in one["chunks"]) for one in found]


def test_a_tool_is_there_and_still_there_when_the_run_goes_on(stage: Stage) -> None:
    path = tool(stage, name="hi", install=HI, usage="hi   says hi")
    ended = stage.run(USE, USE, DONE, DONE, flags=("--tool", path, "--max-turns", "1", "--json"))
    assert ended.status == 3, ended.err
    assert "hi   says hi" in ended.events[0]["system_prompt"]
    assert outputs(stage)[0].startswith("hi there\n")
    ended = stage.call("runs", "resume", "--max-turns", "9", "--discard")
    assert ended.status == 0, ended.err
    assert [text.startswith("hi there\n") for text in outputs(stage)] == [True, True]
    assert len(kept(stage)) == 1


def test_what_was_set_up_is_undone_at_the_end(stage: Stage) -> None:
    """Microbots never did."""
    path = tool(stage, name="hi", setup="echo up >> /workspace/log", uninstall="echo down >> /workspace/log")
    model = stage.script(say("shell", command="cat log"), DONE, DONE)
    ended = stage.call("run", "x", "--folder", f"{stage.demo}:rw", "--model", model, "--tool", path)
    assert ended.status == 0, ended.err
    assert outputs(stage) == ["up\n"]
    assert (stage.demo / "log").read_text() == "up\ndown\n"


PROJECT = """[setup]
commands = ["mkdir bin && cp version.txt bin/greet", "chmod +x bin/greet"]
files = ["version.txt"]
path = ["/opt/project/bin"]
"""


def test_a_trusted_folder_is_set_up_once_for_what_its_files_say(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stage.demo)
    (stage.demo / "stockade.toml").write_text(PROJECT)
    (stage.demo / "version.txt").write_text("#!/bin/sh\necho hello one\n")
    greet = say("shell", command="greet")
    ended = stage.run(greet, DONE, flags=("--discard",))
    assert "is not trusted as it stands" in ended.err
    assert "not found" in outputs(stage)[0]
    assert stage.call("trust", "--yes", "stockade.toml").status == 0
    ended = stage.run(greet, greet, DONE, flags=("--max-turns", "1", "--json"))
    assert "greet" not in ended.events[0]["system_prompt"]
    assert outputs(stage) == ["hello one\n"]
    assert stage.call("runs", "resume", "--max-turns", "9", "--discard").status == 0
    assert outputs(stage) == ["hello one\n", "hello one\n"]
    assert len(kept(stage)) == 1
    (stage.demo / "version.txt").write_text("#!/bin/sh\necho hello two\n")
    done = stage.call("sandbox", "exec", "--folder", ".", "--", "greet")
    assert (done.status, done.out) == (0, "hello two\n"), done.err
    assert len(kept(stage)) == 2


def test_a_passed_on_secret_is_not_on_record(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Microbots wrote them into its log."""
    secret = "correct-horse-battery-staple"
    monkeypatch.setenv("MY_API_KEY", secret)
    path = tool(stage, name="hi", install=HI, pass_environment=["MY_API_KEY"])
    ended = stage.run(USE, DONE, DONE, flags=("--tool", path, "--discard", "--json"))
    assert ended.status == 0, ended.err
    assert secret not in ended.out + ended.err
    assert secret[::-1] in outputs(stage)[0]
    everything = b"".join(file.read_bytes() for file in stage.home.rglob("*") if file.is_file())
    assert secret.encode() not in everything
    monkeypatch.delenv("MY_API_KEY")
    ended = stage.run(USE, DONE, flags=("--tool", path))
    assert (ended.status, ended.out) == (2, "")
    assert "MY_API_KEY" in ended.err


def test_a_failed_install_is_told_before_the_model_is_asked(stage: Stage) -> None:
    path = tool(stage, name="bad", install=["echo one; echo two >&2; exit 7"])
    ended = stage.run(DONE, flags=("--tool", path, "--quiet"))
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == (
        "stockade: installing bad failed: `echo one; echo two >&2; exit 7` ended with status 7\n    one\n    two\n"
    )
    assert kept(stage) == []
    assert stage.left_behind() == []
    assert stage.call("runs", "list", "--json").out == ""


def test_ctrl_c_and_kill_while_installing(stage: Stage) -> None:
    path = tool(stage, name="slow", install=[HI, "sleep 1000"])
    flags = ("run", "x", "--model", stage.script(DONE), "--plain", "--tool", path)
    process = stage.start(*flags)
    until_said(process, "sleep 1000")
    below = watched(descendants(process.pid))
    interrupt(process)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert gone(below)
    assert kept(stage) == []
    process = stage.start(*flags)
    until_said(process, "sleep 1000")
    below = watched(descendants(process.pid))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    assert gone(below)
    assert [name.rpartition(".")[2] for name in kept(stage)] == ["building"]
    Path(path).write_text(json.dumps({"name": "slow", "install": [HI, "sleep 0.1"]}))
    ended = stage.call("run", "x", "--model", stage.script(USE, DONE), "--tool", path)
    assert ended.status == 0, ended.err
    assert len(kept(stage)) == 1


def test_a_sandbox_without_a_model_has_them_too(stage: Stage) -> None:
    path = tool(stage, name="hi", install=HI, setup="echo ready > /tmp/ready")
    ended = stage.call("sandbox", "exec", "--tool", path, "--", "bash", "-c", "hi; cat /tmp/ready")
    assert (ended.status, ended.out) == (0, "hi there\nready\n"), ended.err
    ended = stage.call("sandbox", "exec", "--jsonl", "--tool", path, stdin=b'{"command": "hi"}\n')
    assert json.loads(ended.out)["stdout"] == "hi there\n"
    outside = tool(stage, name="out", external=True, command=["ls"])
    for wrong in ("memory", outside):
        ended = stage.call("sandbox", "exec", "--tool", wrong, "--", "true")
        assert ended.status == 2
        assert "without a model there is no use for it" in ended.err


def test_two_runs_install_once(stage: Stage) -> None:
    counter = "cat /proc/sys/kernel/random/uuid > /usr/share/made-by"
    path = tool(stage, name="hi", install=[counter, HI])
    look = say("shell", command="cat /usr/share/made-by")
    model = stage.script(look, DONE)
    both = [stage.start("run", "x", "--model", model, "--tool", path, "--json") for _ in range(2)]
    said = set()
    for process in both:
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err.decode()
        events = [json.loads(line) for line in out.decode().splitlines()]
        shown = next(event["observation"] for event in events if event["type"] == "action_finished")
        said.add("".join(chunk["text"] for chunk in shown["chunks"]))
    assert len(said) == 1
    assert len(kept(stage)) == 1
