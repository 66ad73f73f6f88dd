"""A folder of this machine, a sandbox on another one: reviewed, applied and undone here, as with a sandbox here."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from stockade.testing import say
from tests.cli.conftest import PATIENCE_S, Stage
from tests.cli.test_remote import knowing, served

__all__ = ["knowing"]

_WORK = r"""
set -e
echo more >> data.csv; rm gone; mv old new; ln -s data.csv link; ln -sfn nowhere turned
chmod 750 tool; mkdir -p fresh/empty dir/inner; chmod 700 empty; rm -r tree; mkdir tree; echo x > tree/x
rm -r dir_to_file; echo f > dir_to_file; rm file_to_dir; mkdir file_to_dir; echo g > file_to_dir/g
printf x >> large; printf '\000\001\377' > binary; head -c 3000000 /dev/zero > zeros; truncate -s 900M hole; rm hole
printf odd > "$(printf 'n\377\n.wh.x')"; rm "$(printf 'o\377d')"; rm -r removed
"""


def fill(folder: Path) -> None:
    """A folder with something of every kind."""
    folder.mkdir(exist_ok=True)
    for name in ("empty", "tree/deep", "dir", "dir_to_file", "removed/below"):
        (folder / name).mkdir(parents=True)
    for name in ("gone", "old", "tool", "tree/deep/y", "dir_to_file/h", "file_to_dir", "removed/below/z", "kept"):
        (folder / name).write_text(f"{name}\n" * 3)
    (folder / "data.csv").write_text("a\nb\n")
    (folder / "tool").chmod(0o640)
    (folder / "turned").symlink_to("kept")
    Path(os.fsdecode(os.fsencode(folder) + b"/o\xffd")).write_text("odd\n")
    (folder / "large").write_bytes(bytes(range(256)) * 12_000)


def seen(folder: Path) -> dict[str, object]:
    """All of a folder: kinds, modes, targets, bytes."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        info, name = path.lstat(), os.fsencode(path.relative_to(folder)).decode("latin1")
        what = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        found[name] = (oct(info.st_mode), what)
    return found


def until_written(name: str) -> None:
    """By the sandbox over there, which is here, to its own layer."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with suppress(FileNotFoundError):  # folders of other sandboxes come and go
            if list(Path(os.environ["XDG_STATE_HOME"]).rglob(f"upper/{name}")):
                return
        time.sleep(0.02)
    raise AssertionError(f"nobody has written {name}")


def test_what_was_written_there_is_reviewed_applied_and_undone_as_what_is_written_here(knowing: Stage) -> None:
    """The same script in a sandbox here and in one there: one review, one folder afterwards."""
    stage, diffs = knowing, list[tuple[str, list[str]]]()
    results, before = list[dict[str, object]](), list[dict[str, object]]()
    with served(stage) as (_, url):
        for place in ("bubblewrap", url):
            folder = stage.tmp_path / f"folder{len(results)}"
            fill(folder)
            before.append(seen(folder))
            model = stage.script(say("shell", command=_WORK), say("finish", answer="done"))
            run = stage.call("run", "work", "--sandbox", place, "--folder", str(folder), "--model", model, "--json")
            assert run.status == 0, run.err
            done = next(event["observation"] for event in run.events if event["type"] == "action_finished")
            assert (done["exit_code"], seen(folder)) == (0, before[-1]), done
            diff = stage.call("runs", "diff", "last")
            diffs.append((diff.out, sorted(json.dumps(change) for change in run.result["changes"])))
            assert stage.call("runs", "apply", "last", "--flagged").status == 0
            results.append(seen(folder))
            assert stage.call("runs", "undo", "last").status == 0
            assert seen(folder) == before[-1]
    assert diffs[0] == diffs[1]
    assert results[0] == results[1]
    assert results[0]["file_to_dir/g"] == ("0o100644", b"g\n")
    assert stage.left_behind() == []


def test_a_file_that_changed_here_meanwhile_is_a_conflict_and_can_be_merged(knowing: Stage) -> None:
    stage, lines = knowing, "".join(f"{number}\n" for number in range(9))
    for name in ("same", "both", "mine"):
        (stage.demo / name).write_text(lines)
    with served(stage) as (_, url):
        model = stage.script(
            say("shell", command="sed -i s/0/bot/ same; sed -i s/8/bot/ both; touch new"),
            say("finish", answer="done"),
        )
        run = stage.start("run", "x", "--sandbox", url, "--folder", str(stage.demo), "--model", model, "--json")
        assert run.stdout is not None
        for line in run.stdout:
            if json.loads(line)["type"] == "action_finished":
                (stage.demo / "same").write_text(lines.replace("0", "host"))
                (stage.demo / "both").write_text(lines.replace("0", "host"))
                (stage.demo / "mine").write_text("host")
                break
        run.communicate()
    refused = stage.call("runs", "apply", "last")
    assert (refused.status, "'both', 'same'" in refused.err, (stage.demo / "new").exists()) == (1, True, False)
    merged = stage.call("runs", "apply", "last", "--merge")
    assert (merged.status, (stage.demo / "new").exists()) == (1, True)
    assert (stage.demo / "both").read_text() == lines.replace("0", "host").replace("8", "bot")
    assert (stage.demo / "same").read_text() == lines.replace("0", "host")
    assert (stage.demo / "mine").read_text() == "host"
    assert stage.call("runs", "discard", "last").status == 0
    assert stage.left_behind() == []


def test_a_killed_server_costs_the_command_that_ran_and_the_folder_is_as_before_it(knowing: Stage) -> None:
    stage, wait = knowing, "echo lost > lost; until [ -e go ]; do sleep 0.05; done"
    with served(stage) as (server, url):
        model = stage.script(
            say("shell", command="A=1; echo kept > kept; rm data.csv; mkdir -p sub; echo s > sub/s"),
            say("shell", command=wait),
            say("shell", command="cat kept sub/s; ls; echo [$A]; echo more >> kept"), say("finish", answer="done"),
        )  # fmt: skip
        run = stage.start("run", "x", "--sandbox", url, "--folder", str(stage.demo), "--model", model, "--json")
        assert run.stdout is not None
        until_written("lost")
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(PATIENCE_S)
        token = str(stage.tmp_path / "token")
        again = stage.start("sandbox", "serve", "--listen", url.removeprefix("http://"), "--token-file", token)
        events = [json.loads(line) for line in run.stdout.read().splitlines()]
        assert run.wait(PATIENCE_S) == 0
        os.killpg(again.pid, signal.SIGINT)
        assert again.wait(PATIENCE_S) == 130
    done = [event["observation"] for event in events if event["type"] == "action_finished"]
    assert "started anew" in json.dumps(done[1])
    assert (done[2]["shell_event"], done[2]["chunks"][0]["text"]) == ("shell_restarted", "kept\ns\nkept\nsub\n[]\n")
    assert stage.call("runs", "apply", "last").status == 0
    assert (stage.demo / "kept").read_text() == "kept\nmore\n"
    assert sorted(path.name for path in stage.demo.iterdir()) == ["kept", "sub"]
    assert stage.left_behind() == []
    assert not list(Path(os.environ["XDG_STATE_HOME"]).rglob("received"))


def test_a_run_that_was_killed_here_goes_on_there_from_its_last_turn(knowing: Stage) -> None:
    stage = knowing
    with served(stage) as (_, url):
        model = stage.script(
            say("shell", command="echo kept > kept; rm data.csv"), say("shell", command="echo lost > lost; sleep 300"),
            say("shell", command="ls"), say("finish", answer="done"),
        )  # fmt: skip
        run = stage.start("run", "x", "--sandbox", url, "--folder", str(stage.demo), "--model", model, "--json")
        until_written("lost")
        os.killpg(run.pid, signal.SIGKILL)
        run.wait(PATIENCE_S)
        again = stage.call("runs", "resume", "last", "--json")
        assert again.status == 0, again.err
        texts = json.dumps([event["observation"] for event in again.events if event["type"] == "action_finished"])
        assert ("kept\\n" in texts, "data.csv" in texts, "lost" in texts) == (True, False, False)
    assert stage.call("runs", "apply", "last").status == 0
    assert [path.name for path in stage.demo.iterdir()] == ["kept"]
