"""`--approve` and questions of a bot: the real command at a real terminal, and without one."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stockade.testing import say

PATIENCE_S = 60.0
ASKING = "words for the bot: "


def script(tmp_path: Path, *answers: str) -> list[str]:
    path = tmp_path / "script.jsonl"
    path.write_text("".join(json.dumps({"content": answer}) + "\n" for answer in answers))
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    return [sys.executable, "-m", "stockade", "run", "do it", "--model", f"scripted/{path}", "--folder", str(folder),
            "--plain", "--discard"]  # fmt: skip


def at_terminal(tmp_path: Path, argv: list[str], typed: list[tuple[str, str]], status: int = 0) -> str:
    """What a person sees who types each line when the words before it are there."""
    main, side = pty.openpty()
    environment = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(argv, stdin=side, stdout=side, stderr=side, env=environment, start_new_session=True)
    os.close(side)
    seen, waiting, end = "", list(typed), time.monotonic() + PATIENCE_S
    shown_from = 0
    try:
        while time.monotonic() < end:
            if not select.select([main], [], [], 0.2)[0]:
                if process.poll() is not None:
                    break
                continue
            try:
                data = os.read(main, 65536)
            except OSError:
                break
            seen += data.decode(errors="replace")
            if waiting and waiting[0][0] in seen[shown_from:]:
                shown_from = len(seen)
                os.write(main, f"{waiting.pop(0)[1]}\n".encode())
        assert process.wait(PATIENCE_S) == status, seen
    finally:
        process.kill()
        os.close(main)
    assert not waiting, seen
    return seen


DONE = say("finish", answer="ok")


def test_each_action_is_asked_about_and_only_a_yes_does_it(tmp_path: Path) -> None:
    answers = [say("shell", command=f"echo run-{n} > f{n}; ls") for n in range(5)]
    argv = [*script(tmp_path, *answers, DONE, DONE), "--approve", "ask"]
    typed = [(ASKING, "y"), (ASKING, "yy"), (ASKING, "use a folder instead"), (ASKING, "y -x"), (ASKING, "y -2")]
    seen = at_terminal(tmp_path, argv, typed)
    assert "Allow this action?\n$ echo run-0 > f0; ls" in seen.replace("\r", "")
    assert "[not run: the user refused it: yy]" in seen
    assert "[not run: the user refused it: use a folder instead]" in seen
    assert "this authorises nothing" in seen
    assert "3 files changed" in seen


def test_no_ends_the_run_as_it_does_in_a_plan(tmp_path: Path) -> None:
    answers = [say("shell", command=f"echo run-{n} > f{n}") for n in range(2)]
    argv = [*script(tmp_path, *answers, DONE), "--approve", "ask"]
    seen = at_terminal(tmp_path, argv, [(ASKING, "y"), (ASKING, "n")], status=3)
    assert "1 file changed" in seen


def test_reading_is_not_asked_about_by_rules_until_names_may_mean_something_else(tmp_path: Path) -> None:
    lines = ("ls -la | head -3", "echo one > f", "cat f && wc -l < f", "ls() { echo mine; }", "ls")
    argv = [*script(tmp_path, *(say("shell", command=line) for line in lines), DONE), "--approve", "rules"]
    seen = at_terminal(tmp_path, argv, [(ASKING, "y")] * 4)
    assert seen.count("Allow this action?") == 4
    assert "'> f' redirects" in seen
    assert "since: ls() { echo mine; }" in seen
    own = tmp_path / "own.toml"
    own.write_text('[[command]]\nname = "touch"\n[[deny]]\nname = "cat"\nreason = "it is long"\n')
    told = [say("shell", command=line) for line in ("touch g", "cat g", "rm g")]
    argv = [*script(tmp_path, *told, DONE), "--approve", f"rules={own}"]
    heard = unattended(tmp_path, argv).stderr
    assert "1 file changed" in heard
    assert "it is long" in heard
    assert "'rm g' is not allowed" in heard


@pytest.mark.parametrize(
    "text", ["[", "[[command]]", "command = 1", None, "\0", "[[command]]\nname = 'a'\noptions = 'x'"]
)
def test_a_file_of_rules_that_is_none_is_one_line(tmp_path: Path, text: str | None) -> None:
    own = tmp_path / "own.toml"
    if text is not None:
        own.write_text(text)
    said = unattended(tmp_path, [*script(tmp_path, DONE), "--approve", f"rules={own}"], status=2).stderr
    assert str(own) in said
    assert said.count("\n") <= 2


def test_what_is_allowed_for_the_run_is_not_asked_again(tmp_path: Path) -> None:
    same = say("shell", command="echo hello")
    argv = [*script(tmp_path, same, same, DONE), "--approve", "ask"]
    seen = at_terminal(tmp_path, argv, [(ASKING, "r")])
    assert seen.count("Allow this action?") == 1


def test_what_is_always_allowed_holds_for_that_bot_in_that_folder(tmp_path: Path) -> None:
    """On 90cacfa permission given in one folder ran `rm a.txt` in another, without a terminal too."""
    remove = say("shell", command="rm a.txt")
    argv = [*script(tmp_path, remove, DONE), "--approve", "ask"]
    (tmp_path / "work" / "a.txt").touch()
    assert "Allow this action?" in at_terminal(tmp_path, argv, [(ASKING, "a")])
    link = tmp_path / "link"
    link.symlink_to("work")
    for again in (argv, [str(link) if word == str(tmp_path / "work") else word for word in argv]):
        assert "Allow this action?" not in at_terminal(tmp_path, again, [])
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").touch()
    elsewhere = [str(other) if word == str(tmp_path / "work") else word for word in argv]
    for refused in (elsewhere, [*elsewhere, "--bot", "reading"], [*argv, "--bot", "reading"], in_no_folder(argv)):
        assert "Nobody is there to allow it" in unattended(tmp_path, refused).stderr
    assert "Nobody is there" not in unattended(tmp_path, argv).stderr
    more = [*script(tmp_path, say("shell", command="rm a.txt; rm -rf /workspace"), DONE), "--approve", "ask"]
    assert "Allow this action?" in at_terminal(tmp_path, more, [(ASKING, "n")], status=3)


def test_what_is_allowed_in_a_sandbox_is_not_allowed_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOCKADE_ALLOW_ROOT_UNCONFINED", "1")
    argv = [*script(tmp_path, say("shell", command="rm a.txt"), DONE), "--approve", "ask"]
    (tmp_path / "work" / "a.txt").touch()
    assert "Allow this action?" in at_terminal(tmp_path, argv, [(ASKING, "a")])
    assert "Nobody is there" not in unattended(tmp_path, argv).stderr
    assert "Nobody is there" in unattended(tmp_path, [*argv, "--sandbox", "unconfined"]).stderr


def test_what_holds_a_secret_is_not_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", "brown horse 4711")
    commands = ("echo 'brown horse 4711' > f", "echo 'brown'' horse 4711'", "echo hello")
    answers = [say("shell", command=command) for command in commands for _ in range(2)]
    argv = [*script(tmp_path, *answers, DONE), "--approve", "ask", "--redact", "LOGIN"]
    seen = at_terminal(tmp_path, argv, [(ASKING, "a")] * 3)
    assert seen.count("Allow this action?") == 3
    listed = unattended(tmp_path, [sys.executable, "-m", "stockade", "approvals", "list", "--json"]).stdout
    assert [json.loads(line)["text"] for line in listed.splitlines()] == ["echo hello"]


def in_no_folder(argv: list[str]) -> list[str]:
    place = argv.index("--folder")
    return argv[:place] + argv[place + 2 :]


def test_permissions_are_listed_and_taken_back(tmp_path: Path) -> None:
    argv = [*script(tmp_path, say("shell", command="echo hello | tr a b"), DONE), "--approve", "ask"]
    at_terminal(tmp_path, argv, [(ASKING, "a")])
    stockade = [sys.executable, "-m", "stockade", "approvals"]
    listed = unattended(tmp_path, [*stockade, "list"]).stdout
    assert f"{tmp_path}/work:overlay" in listed
    assert "tr a b" in listed
    rows = [json.loads(row) for row in unattended(tmp_path, [*stockade, "list", "--json"]).stdout.splitlines()]
    assert [(row["number"], row["bot"], row["text"]) for row in rows] == [
        (1, "writing", "echo hello"),
        (2, "writing", "tr a b"),
    ]
    assert "echo hello" in unattended(tmp_path, [*stockade, "rm", "1"]).stderr
    assert "Nobody is there to allow it" in unattended(tmp_path, argv).stderr
    for wrong in (["rm"], ["rm", "9"], ["rm", "0"], ["rm", "1", "--all"]):
        assert unattended(tmp_path, [*stockade, *wrong], status=2).stderr.count("\n") == 2
    unattended(tmp_path, [*stockade, "rm", "--all"])
    assert "nothing is allowed" in unattended(tmp_path, [*stockade, "list"]).stderr


def test_the_file_of_before_is_named_and_allows_nothing(tmp_path: Path, _own_home: Path) -> None:  # noqa: PT019
    argv = [*script(tmp_path, say("shell", command="echo hello"), DONE), "--approve", "ask", "--quiet"]
    old = _own_home / ".local" / "state" / "stockade" / "allowed"
    old.parent.mkdir(parents=True)
    old.write_text("0" * 64 + "  echo hello\n")
    assert f"stockade: {old} is not read any more" in unattended(tmp_path, argv).stderr


def unattended(tmp_path: Path, argv: list[str], status: int = 0) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
                          env={**os.environ, "HOME": str(tmp_path)}, stdin=subprocess.DEVNULL)  # fmt: skip
    assert done.returncode == status, done.stderr
    return done


@pytest.mark.parametrize("how", ["ask", "rules"])
def test_without_a_terminal_nobody_says_yes(tmp_path: Path, how: str) -> None:
    argv = [*script(tmp_path, say("shell", command="rm -rf /workspace/x; echo done > y"), DONE), "--approve", how]
    done = unattended(tmp_path, argv)
    assert "Nobody is there to allow it" in done.stderr
    assert done.stderr.rstrip().endswith("nothing changed")


def test_the_bot_asks_and_the_person_answers(tmp_path: Path) -> None:
    argv = [*script(tmp_path, say("ask_user", question="Which \x1b[2J colour?"), DONE), "--tool", "ask_user"]
    seen = at_terminal(tmp_path, argv, [("your answer", "blue")])
    assert "colour?" in seen
    assert "\x1b[2J" not in seen
    assert "blue" in seen.split("your answer", 1)[1]
