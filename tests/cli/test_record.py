"""The record through the real command: PostgreSQL, secrets, a damaged file."""

import json
import os
import stat
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import COUNT, DONE, Stage
from tests.support.postgres import Server

SECRET = "sesame-open-4711"


def test_a_run_on_record_in_postgresql(stage: Stage, postgres: Server) -> None:
    where = postgres.new_database()
    ended = stage.run(COUNT, DONE, DONE, flags=("--store", where, "--discard"))
    assert (ended.status, ended.out) == (0, "3 lines\n"), ended.err
    listed = json.loads(stage.call("runs", "list", "--json", "--store", where).out)
    assert (listed["status"], listed["driver"]) == ("done", None)
    assert "wc -l < data.csv" in stage.call("runs", "show", "--store", where).out
    assert stage.call("runs", "show").status == 2
    assert not (stage.state / "runs.db.large").exists()


def test_a_server_that_is_not_there_is_one_line_without_the_password(stage: Stage) -> None:
    ended = stage.call("runs", "list", "--store", f"postgresql://me:{SECRET}@127.0.0.1:1/db")
    assert ended.status == 4
    assert len(ended.err.splitlines()) == 2
    assert SECRET not in ended.err + ended.out


@pytest.mark.parametrize(
    "words", ["list", "show last", "diff", "export", "replay", "resume last", "rewind last --to 1"]
)
def test_a_record_that_is_not_there_is_not_made_by_looking_into_it(stage: Stage, words: str) -> None:
    for where in (stage.tmp_path / "typo" / "runs.db", stage.tmp_path / "typo.db"):
        ended = stage.call("runs", *words.split(), "--store", str(where))
        assert (ended.status, ended.out) == (2, "")
        assert ended.err.startswith(f"stockade: there is no record {where}\nhint: check --store")
        assert not where.exists()
        assert not (stage.tmp_path / "typo").exists()


def test_a_run_makes_the_record_and_not_its_folder(stage: Stage) -> None:
    ended = stage.run(COUNT, DONE, DONE, flags=("--store", str(stage.tmp_path / "typo" / "runs.db"), "--discard"))
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"stockade: there is no folder {stage.tmp_path}/typo for the record runs.db\nhint: ")
    assert not (stage.tmp_path / "typo").exists()
    where = str(stage.tmp_path / "mine.db")
    assert stage.run(COUNT, DONE, DONE, flags=("--store", where, "--discard")).status == 0
    assert "done" in stage.call("runs", "list", "--store", where).out


def test_a_secret_is_used_and_stands_nowhere(stage: Stage) -> None:
    token = "ghp_" + "aB3" * 12
    uses = f'test "$MY_TOKEN" = {SECRET} && echo "it is $MY_TOKEN" && echo {token}'
    last = say("finish", answer=f"the token is {SECRET}")
    answers = (
        say("shell", thought=f"I use {SECRET}.", command=uses),
        say("shell", command='printf "%s" "$MY_TOKEN" | base64; printf "\\033[2J"'),
        last,
        last,
    )
    flags = ("--env", f"MY_TOKEN={SECRET}", "--no-input")
    ended = stage.run(*answers, flags=flags, task=f"log in with {SECRET}")
    assert ended.status == 0, ended.err
    assert ended.out == "the token is [redacted: MY_TOKEN]\n"
    assert "it is [redacted: MY_TOKEN]" in ended.err
    assert "the task holds a secret (MY_TOKEN)" in ended.err
    streamed = stage.run(*answers, flags=(*flags, "--json"))
    seen = [ended.err, streamed.out, streamed.err]
    views = ("show --full", "show --json", "list --json", "export last --format jsonl", "replay --speed 1000")
    for arguments in (view.split() for view in views):
        shown = stage.call("runs", *arguments)
        assert shown.status == 0, shown.err
        seen += [shown.out, shown.err]
    seen += [path.read_bytes().decode("latin-1") for path in stage.state.rglob("*") if path.is_file()]
    assert not [text for text in seen if "\x1b[2J" in text]
    seen.append(stage.call("runs", "export", "last", "--format", "markdown").out)  # it keeps the bytes
    for text in seen:
        assert SECRET not in text
        assert token not in text
        assert "c2VzYW1l" not in text


def test_a_secret_of_a_configuration_is_hidden_beside_that_of_a_flag(stage: Stage) -> None:
    folder = stage.home / ".config" / "stockade"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('redact = ["LOGIN"]\n')
    last = say("finish", answer="brown horse and blue hen")
    values = ("--env", "LOGIN=brown horse", "--env", "OTHER=blue hen")
    ended = stage.run(last, last, flags=(*values, "--redact", "OTHER"))
    assert ended.out == "[redacted: LOGIN] and [redacted: OTHER]\n", ended.err


def test_a_named_variable_must_be_there(stage: Stage) -> None:
    ended = stage.run(DONE, flags=("--redact", "NOT_SET_ANYWHERE"))
    assert ended.status == 2
    assert "--redact NOT_SET_ANYWHERE: the variable is not set here" in ended.err


def test_a_damaged_record_is_named_with_the_way_out(stage: Stage) -> None:
    assert stage.run(COUNT, DONE, DONE, flags=("--discard",)).status == 0
    record: Path = stage.state / "runs.db"
    data = bytearray(record.read_bytes())
    data[:1000] = os.urandom(1000)
    record.write_bytes(data)
    listed = stage.call("runs", "list")
    assert listed.status == 4
    assert "is damaged" in listed.err
    assert f"sqlite3 {record} .recover" in listed.err


def test_a_record_of_an_older_version_is_its_owners_alone_once_it_is_opened(stage: Stage) -> None:
    assert stage.run(DONE).status == 0
    record = stage.state / "runs.db"
    elsewhere = stage.tmp_path / "shared.db"
    assert stage.run(DONE, flags=("--store", str(elsewhere))).status == 0
    for path, mode in ((stage.state, 0o755), (record, 0o644), (elsewhere, 0o640)):
        path.chmod(mode)
    assert stage.call("runs", "list").status == 0
    assert stage.call("runs", "list", "--store", str(elsewhere)).status == 0
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (stage.state, record, elsewhere)]
    assert modes == [0o700, 0o600, 0o640], "one that the user named is theirs to share"
