"""A record of each release opens in this one: listed, shown, replayed, exported, gone on with.

`tests/data/records/RELEASE.db.gz` is the `runs.db` of two runs: `tk2bpj` was killed while its second command ran, and
`cwd7ph` counted lines, failed once, wrote a file, was checked and applied.
"""

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stockade.core.events import OLDEST_SCHEMA_VERSION, SCHEMA_VERSION
from stockade.store import rows
from stockade.store.opening import open_store
from stockade.testing import say
from tests.cli.conftest import Stage

RECORDS = sorted((Path(__file__).parents[1] / "data" / "records").glob("*.db.gz"))
DONE, CUT = "cwd7ph", "tk2bpj"
pytestmark = pytest.mark.anyio
releases = pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.name.removesuffix(".db.gz"))


def put(record: Path, folder: Path) -> Path:
    """The record as it was, in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "runs.db"
    path.write_bytes(gzip.decompress(record.read_bytes()))
    return path


def test_there_is_a_record_of_each_version(tmp_path: Path) -> None:
    found = set[int]()
    for number, record in enumerate(RECORDS):
        with closing(sqlite3.connect(put(record, tmp_path / str(number)))) as db:
            bodies = db.execute("SELECT body FROM events WHERE type = 'run_started'").fetchall()
        found |= {json.loads(body)["schema_version"] for (body,) in bodies}
    assert found == set(range(OLDEST_SCHEMA_VERSION, SCHEMA_VERSION + 1))


@releases
async def test_the_next_version_reads_it_too(record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    store = open_store(str(put(record, tmp_path)))
    ends = [(await store.events(one.run_id))[-1].type for one in await store.runs()]
    await store.close()
    assert ends == ["action_started", "changes_applied"]


@releases
def test_it_is_looked_at(record: Path, stage: Stage) -> None:
    put(record, stage.state)
    listed = stage.call("runs", "list", "--json").events
    assert [(one["run_id"][-6:], one["status"]) for one in listed] == [(CUT, "interrupted"), (DONE, "done")]
    (run,) = [one["run_id"] for one in listed if one["run_id"].endswith(DONE)]
    shown = stage.call("runs", "show", run, "--full")
    assert (shown.status, shown.err) == (0, "")
    for words in ("wc -l < data.csv > count.txt", "err", "[exit 1]", "new.txt", "test -f count.txt", "verified"):
        assert words in shown.out, words
    replayed = stage.call("runs", "replay", run)
    assert (replayed.status, "no action at all" in replayed.out) == (0, True), replayed.err
    for form in ("jsonl", "markdown", "atif", "asciicast", "junit"):
        exported = stage.call("runs", "export", run, "--format", form)
        assert (exported.status, "count.txt" in exported.out) == (0, True), exported.err
    assert DONE in stage.call("runs", "search", "lines").out


@releases
def test_what_was_cut_goes_on(record: Path, stage: Stage) -> None:
    put(record, stage.state)
    (run,) = [one["run_id"] for one in stage.call("runs", "list", "--json").events if one["run_id"].endswith(CUT)]
    before = [say("shell", command=command) for command in ("echo begun", "sleep 60")]
    model = stage.script(*before, say("shell", command="echo on"), say("finish", answer="on"))
    ended = stage.call("runs", "resume", run, "--model", model, "--json")
    assert (ended.status, ended.result["answer"]) == (0, "on"), ended.err
    told = stage.call("runs", "export", run, "--format", "jsonl").events
    kinds = [one["observation"]["kind"] for one in told if one["type"] == "action_finished"]
    assert kinds == ["command", "unknown", "command"]
