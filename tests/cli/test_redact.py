"""What `--redact` names leaves by no way: screen, diff, exports, replay, another process. Files keep their bytes."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import PATIENCE_S, Ended, Stage

VALUE = "brown horse 4711/é"
WRITES = say("shell", thought=f"It is {VALUE}.", command='echo "login $LOGIN"; echo "key = $LOGIN" > made.txt')
DONE = say("finish", answer=f"wrote {VALUE}")
RECORDED = ("show --full", "show --json", "list --json", "export --format jsonl", "export --format atif",
            "export --format asciicast", "replay --speed 0")  # fmt: skip


@pytest.fixture
def ran(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A run that was given the value, wrote it and echoed it; its changes are kept."""
    monkeypatch.setenv("LOGIN", VALUE)
    (stage.demo / "other.txt").write_text(f"before\n{VALUE}\nafter\n")
    rewrites = say("shell", command="sed -i s/before/earlier/ other.txt")
    ended = stage.run(WRITES, rewrites, DONE, flags=("--env", "LOGIN", "--redact", "LOGIN", "--no-input"))
    assert (ended.status, ended.out) == (0, "wrote [redacted: LOGIN]\n"), ended.err
    assert_hidden(ended.out, ended.err)
    assert "+key = [redacted: LOGIN]" in ended.err
    assert "shown as [redacted: ...], unchanged in the files: LOGIN" in ended.err
    return stage


def spelled() -> list[str]:
    return [VALUE, json.dumps(VALUE)[1:-1], "horse 4711"]


def assert_hidden(*texts: str) -> None:
    for text in texts:
        assert not [one for one in spelled() if one in text], text


def on_terminal(stage: Stage, *arguments: str) -> Ended:
    """The command with a terminal for its standard output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "stockade.cli", *arguments], stdin=subprocess.DEVNULL, stdout=theirs,
        stderr=subprocess.PIPE, env={**stage.environment(), "TERM": "dumb", "COLUMNS": "200"},
    )  # fmt: skip
    os.close(theirs)
    read: list[bytes] = []
    try:
        while piece := os.read(ours, 65536):
            read.append(piece)
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    _, err = process.communicate(timeout=PATIENCE_S)
    return Ended(process.returncode, b"".join(read).decode(), err.decode())


def test_everything_that_shows_a_record_is_without_the_value(ran: Stage) -> None:
    for words in RECORDED:
        shown = ran.call("runs", *words.split())
        assert shown.status == 0, shown.err
        assert shown.out
        assert_hidden(shown.out, shown.err)
    report = ran.call("runs", "export", "--format", "markdown")
    assert "+key = [redacted: LOGIN]" in report.out
    assert_hidden(report.out)
    for path in ran.state.rglob("*"):
        if path.is_file() and "runs/" not in str(path):
            assert_hidden(path.read_bytes().decode("latin-1"), path.read_bytes().decode(errors="replace"))


def test_the_variable_is_not_needed_for_what_is_on_record(ran: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOGIN")
    for words in RECORDED:
        shown = ran.call("runs", *words.split())
        assert shown.status == 0, shown.err
        assert_hidden(shown.out, shown.err)
    assert "the changes are not shown: the run hid the value of LOGIN" in ran.call("runs", "replay").err


def test_a_patch_that_would_be_changed_is_refused(ran: Stage) -> None:
    for more in ((), ("--json",)):
        refused = ran.call("runs", "diff", "last", *more)
        assert (refused.status, refused.out) == (2, "")
        assert "the diff holds what is to be hidden (LOGIN)" in refused.err
        assert "--show-secrets" in refused.err
        assert_hidden(refused.err)


def test_with_show_secrets_a_patch_is_exact(ran: Stage) -> None:
    patch = ran.call("runs", "diff", "last", "--show-secrets")
    assert patch.status == 0, patch.err
    assert (
        json.loads(ran.call("runs", "diff", "last", "--show-secrets", "--json").out.splitlines()[0])["diff"]
        in patch.out
    )
    subprocess.run(["git", "apply", "-"], input=patch.out.encode(), cwd=ran.demo, check=True)
    assert (ran.demo / "made.txt").read_text() == f"key = {VALUE}\n"
    assert (ran.demo / "other.txt").read_text() == f"earlier\n{VALUE}\nafter\n"


def test_a_patch_without_a_secret_is_written(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", VALUE)
    plain = say("shell", command="echo plain > made.txt")
    assert stage.run(plain, say("finish", answer="ok"), flags=("--redact", "LOGIN", "--no-input")).status == 0
    assert "+plain\n" in stage.call("runs", "diff", "last").out


def test_on_a_terminal_a_diff_is_masked_and_that_is_said(ran: Stage) -> None:
    shown = on_terminal(ran, "runs", "diff", "last")
    assert shown.status == 0, shown.err
    assert "+key = [redacted: LOGIN]" in shown.out
    assert "unchanged in the files: LOGIN" in shown.out
    lines = on_terminal(ran, "runs", "diff", "last", "--json")
    assert "[redacted: LOGIN]" in lines.out
    assert_hidden(shown.out, shown.err, lines.out, lines.err)
    assert f"+key = {VALUE}" in on_terminal(ran, "runs", "diff", "last", "--show-secrets").out


def test_where_the_value_is_not_known_any_more_changes_are_not_shown(
    ran: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOGIN")
    for refused in (ran.call("runs", "diff", "last"), on_terminal(ran, "runs", "diff", "last")):
        assert (refused.status, refused.out) == (2, "")
        assert "the run hid the value of LOGIN, which is not set here" in refused.err
        assert "set LOGIN as it was" in refused.err
        assert "--show-secrets" in refused.err
    report = ran.call("runs", "export")
    assert report.status == 0, report.err
    assert "left out: the run hid the value of LOGIN" in report.out
    assert_hidden(report.out)
    assert f"+key = {VALUE}" in ran.call("runs", "diff", "last", "--show-secrets").out


def test_a_diff_needs_values_of_the_sandbox_too(stage: Stage) -> None:
    """`--env MY_TOKEN=...` alone hides it: another process does not know the value, and must not show it."""
    flags = ("--env", f"MY_TOKEN={VALUE}", "--no-input")
    writes = say("shell", command='echo "$MY_TOKEN" > made.txt')
    assert stage.run(writes, say("finish", answer="ok"), flags=flags).status == 0
    refused = stage.call("runs", "diff", "last")
    assert refused.status == 2
    assert "the run hid the value of MY_TOKEN" in refused.err
    assert_hidden(refused.out, refused.err)


def test_files_keep_their_bytes(ran: Stage) -> None:
    applied = ran.call("runs", "apply", "last")
    assert applied.status == 0, applied.err
    assert_hidden(applied.out, applied.err)
    assert (ran.demo / "made.txt").read_text() == f"key = {VALUE}\n"
    assert (ran.demo / "other.txt").read_text() == f"earlier\n{VALUE}\nafter\n"


def test_a_bot_that_writes_the_mark_over_a_value_is_not_applied_unseen(stage: Stage) -> None:
    """It was shown the mark, and writes the whole file anew: masked, both lines of the diff look the same."""
    (stage.demo / "settings.ini").write_text(f"key = {VALUE}\n")
    mark = "key = [redacted: LOGIN]\nmore = 1\n"
    writes = say("shell", command=f"printf %s '{mark}' > settings.ini")
    assert stage.run(writes, say("finish", answer="ok"), flags=("--apply",)).status == 0
    assert (stage.demo / "settings.ini").read_text() == f"key = {VALUE}\n"
    assert "holds [redacted: ...]" in stage.call("runs", "apply", "last").err
    assert stage.call("runs", "apply", "last", "--flagged").status == 0
    assert (stage.demo / "settings.ini").read_text() == mark


def test_the_coder_hides_it_in_its_last_line_too(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", VALUE)
    program = f"### Requirements\nnone\n### Code\n```python\nimport os\nprint(os.environ['LOGIN'], '{VALUE}')\n```"
    flags = ("--env", "LOGIN", "--redact", "LOGIN", "--json", "--model", stage.script(program, program))
    ended = stage.call("code", "Print the login.", *flags)
    assert ended.status == 0, ended.out
    assert "[redacted: LOGIN]" in json.dumps(ended.result["code"]["stdout"])
    assert_hidden(ended.out, ended.err)
    assert "[redacted: LOGIN]" in stage.call("runs", "show").out


def test_verify_compares_up_to_what_is_hidden(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also an action whose command held the value: it is done with the value, as it was then."""
    monkeypatch.setenv("LOGIN", VALUE)
    (stage.demo / "key.txt").write_text(VALUE)
    answers = (WRITES, say("shell", command=f"cat key.txt; test '{VALUE}' = \"$(cat key.txt)\" && echo same"), DONE)
    ended = stage.run(*answers, flags=("--env", "LOGIN", "--redact", "LOGIN", "--discard"))
    assert ended.status == 0, ended.err
    same = stage.call("runs", "replay", "--verify")
    assert "2 actions done again: all the same" in same.err
    assert same.status == 0
    (stage.demo / "key.txt").write_text(f"{VALUE}\n")
    other = stage.call("runs", "replay", "--verify")
    assert other.status == 1
    assert "turn 2: shell cat key.txt" in other.err
    assert "recorded: '[redacted: LOGIN]same'\n  now:      '[redacted: LOGIN]'" in other.err
    assert_hidden(same.out, same.err, other.out, other.err)
    monkeypatch.delenv("LOGIN")
    unknown = stage.call("runs", "replay", "--verify")
    assert unknown.status == 2
    assert "the run hid the value of LOGIN, which is not on record" in unknown.err


def test_a_resumed_run_hides_what_it_hid_before(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", VALUE)
    (stage.demo / "key.txt").write_text(VALUE)
    look = say("shell", command="cat key.txt")
    begun = stage.run(look, look, DONE, flags=("--redact", "LOGIN", "--max-turns", "1", "--no-input"))
    assert begun.status == 3, begun.err
    went_on = stage.call("runs", "resume", "--max-turns", "5", "--no-input")
    assert (went_on.status, went_on.out) == (0, "wrote [redacted: LOGIN]\n"), went_on.err
    shown = stage.call("runs", "show", "--full")
    assert shown.out.count("[redacted: LOGIN]") > 2
    assert_hidden(begun.err, went_on.err, shown.out)
    monkeypatch.delenv("LOGIN")
    refused = stage.call("runs", "resume", "last", "again")
    assert refused.status == 2
    assert "the run hid the value of LOGIN, which is not on record" in refused.err


def test_a_resumed_run_has_the_value_that_it_had(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", VALUE)
    look = say("shell", command="echo ${#LOGIN} letters")
    hidden = ("--env", "LOGIN", "--redact", "LOGIN")
    begun = stage.run(look, look, DONE, flags=(*hidden, "--max-turns", "1", "--no-input"))
    assert begun.status == 3, begun.err
    went_on = stage.call("runs", "resume", "--max-turns", "5", "--no-input")
    assert went_on.status == 0, went_on.err
    shown = stage.call("runs", "show", "--full")
    assert shown.out.count(f"{len(VALUE)} letters") == 2
    assert_hidden(begun.err, went_on.err, shown.out)


def test_the_model_does_not_see_the_value(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the model is asked is folded from the record: the same redacted events."""
    monkeypatch.setenv("LOGIN", VALUE)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    flags = ("--env", "LOGIN", "--redact", "LOGIN", "--discard")
    ended = stage.run(WRITES, say("read_file", path="made.txt"), DONE, flags=flags, task=f"log in with {VALUE}")
    assert ended.status == 0, ended.err
    assert "key = [redacted: LOGIN]" in ended.err
    assert "gen_ai" in ended.err
    assert_hidden(ended.out, ended.err)


def test_a_short_value_is_not_hidden_and_that_is_said_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIN", "1234567")
    ended = stage.run(say("finish", answer="it is 1234567"), flags=("--redact", "PIN"))
    assert (ended.status, ended.out) == (0, "it is 1234567\n")
    assert ended.err.count("--redact PIN: its value has fewer than 8 bytes and is not hidden") == 1
    assert stage.call("runs", "diff", "last").status == 0


def test_a_long_line_is_masked_before_it_is_cut(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen cuts lines at 4,000 characters: half of the value stood there."""
    monkeypatch.setenv("LOGIN", VALUE)
    long = say("shell", command='printf "%03990d%s\\n" 0 "$LOGIN" > made.txt')
    flags = ("--env", "LOGIN", "--redact", "LOGIN", "--no-input")
    ended = stage.run(long, say("finish", answer="ok"), flags=flags)
    assert "0" * 3000 in ended.err
    assert "brown" not in ended.err


@pytest.mark.parametrize(
    ("wrong", "named"),
    [("--folder", ("--redact", "LOGIN")), ("--max-turns", ("--env", f"OTHER={VALUE}", "--redact", "OTHER")),
     ("-o", ("--redact", "LOGIN")), ("--folder", ())],
)  # fmt: skip
def test_what_goes_wrong_before_a_run_is_said_without_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, wrong: str, named: tuple[str, ...]
) -> None:
    """Also by a flag that stands before the one that names the value; without one the configuration names it."""
    monkeypatch.setenv("LOGIN", VALUE)
    if not named:
        monkeypatch.setenv("STOCKADE_REDACT", "LOGIN")
    ended = stage.call("run", "x", wrong, VALUE, *named, "--model", stage.script(DONE))
    assert ended.status == 2
    assert "[redacted: " in ended.err
    assert_hidden(ended.out, ended.err)


def test_the_sandbox_alone_hides_what_is_named_and_nothing_else(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", VALUE)
    token = "ghp_" + "aB3" * 12
    flags = ("--env", "LOGIN", "--redact", "LOGIN")
    done = stage.call("sandbox", "exec", *flags, "--", "sh", "-c", f'echo "$LOGIN {token}"; echo "$LOGIN" >&2')
    assert (done.status, done.out, done.err) == (0, f"[redacted: LOGIN] {token}\n", "[redacted: LOGIN]\n")
    line = json.dumps({"command": 'echo "$LOGIN"'}).encode() + b"\n"
    assert (
        json.loads(stage.call("sandbox", "exec", "--jsonl", *flags, stdin=line).out)["stdout"] == "[redacted: LOGIN]\n"
    )
    assert stage.call("sandbox", "exec", "--env", "LOGIN", "--", "sh", "-c", 'echo "$LOGIN"').out == f"{VALUE}\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "x", "--secret", "LOGIN"), "it is --redact now"),
        (("sandbox", "exec", "--secret", "LOGIN", "true"), "it is --redact now"),
        (("run", "x", "-o", "secret=LOGIN"), "write -o redact=VALUE"),
    ],
    ids=["flag", "sandbox", "option"],
)
def test_the_flag_of_version_1_names_the_new_one(stage: Stage, words: tuple[str, ...], told: str) -> None:
    ended = stage.call(*words)
    assert (ended.status, ended.out) == (2, "")
    assert f"hint: {told}\n" in ended.err


def test_the_setting_of_version_1_is_refused(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read as unknown, it would let a value come to light that was hidden."""
    config: Path = stage.home / ".config" / "stockade"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('secret = ["LOGIN"]\n')
    in_file = stage.call("run", "x")
    assert in_file.status == 2
    assert "config.toml: redact" in in_file.err
    (config / "config.toml").unlink()
    monkeypatch.setenv("STOCKADE_SECRET", "LOGIN")
    in_variable = stage.call("run", "x")
    assert in_variable.status == 2
    assert "hint: write STOCKADE_REDACT" in in_variable.err
