"""The log-analysis bot on a log that is never read whole: 200 MB, 2 GB in `make test-long`."""

import json

from stockade.testing import say
from tests.cli.conftest import Stage
from tests.support.scale import SCALE

LINE = b"2026-11-28 10:00:00.000 INFO  worker %06d: request served in 12 ms, nothing to see here\n"
MIB = 2048 if SCALE >= 20 else 200


def test_the_cause_is_found_by_tools_that_fit(stage: Stage) -> None:
    log, block = stage.tmp_path / "app.log", b"".join(LINE % number for number in range(12_000))
    with log.open("wb") as file:
        for number in range(MIB):
            file.write(block[: 1 << 20])
            if number == MIB // 2:
                file.write(b"\n2026-11-28 11:11:11.111 ERROR worker 7: disk full on /data, caused by backup.sh\n")
    commands = (
        "grep -n -m 3 ERROR /copied/app.log",
        'awk \'$3 == "ERROR" {n++} END {print n " errors of " NR}\' /copied/app.log',
        "python3 - <<'PY'\nimport sqlite3\ndb = sqlite3.connect(':memory:')\ndb.execute('CREATE TABLE e (line)')\n"
        "rows = ((l,) for l in open('/copied/app.log') if 'ERROR' in l)\n"
        "db.executemany('INSERT INTO e VALUES (?)', rows)\n"
        "print(db.execute('SELECT count(*) FROM e').fetchone()[0], 'in sqlite')\nPY",
        "tail -c 100 /copied/app.log; echo x >> /copied/app.log",
    )
    answers = [*(say("shell", command=command) for command in commands), say("finish", answer="backup.sh")]
    flags = ("--bot", "log-analysis", "--no-folder", "--copy", str(log), "--json", "--disk", "6G")
    ended = stage.call("run", "why?", *flags, "--model", stage.script(*answers))
    assert (ended.status, ended.result["answer"]) == (0, "backup.sh"), ended.err
    seen = [json.dumps(one["observation"]) for one in ended.events if one["type"] == "action_finished"]
    assert "caused by backup.sh" in seen[0]
    assert "1 errors of " in seen[1]
    assert "1 in sqlite" in seen[2]
    assert all(len(one) < 2_000 for one in seen)
    assert log.stat().st_size == MIB * (1 << 20) + 81
