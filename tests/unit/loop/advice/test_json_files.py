"""Commands on JSON files: what is proposed does what was meant."""

from pathlib import Path

import anyio
import pytest

from stockade.loop.advice import commands
from stockade.loop.advice.said import INSTEAD

pytestmark = pytest.mark.anyio
SENSORS = '[{"id": "s1", "room": "attic"}, {"id": "s2", "room": "bath"}]'
COLUMNS = "Turn sensors.json into sensors.csv with the header room,id and one row per sensor."
ROWS = 'room,id\n"attic","s1"\n"bath","s2"\n'
LINE = '{"b": [1, 2], "a": "é"}'
INDENTED = '{\n    "b": [\n        1,\n        2\n    ],\n    "a": "é"\n}\n'
INDENT = "Make one.json nicely indented."


@pytest.mark.parametrize(
    ("command", "task", "file", "expected"),
    [
        ("jq -r '.[] | @csv' sensors.json > sensors.csv", COLUMNS, "sensors.csv", ROWS),
        ("cat sensors.json | jq -r '.[] | @csv'", COLUMNS, "sensors.csv", ROWS),
        ("jq '.keys' one.json > keys.txt", "the keys", "keys.txt", "b\na\n"),
        ("cat one.json | jq '.length' > n.txt", "how many", "n.txt", "2\n"),
        ("sed -i 's/,/,\\n/g' one.json", INDENT, "one.json", INDENTED),
        ("tr ',' ' ' one.json > two.json", INDENT, "two.json", INDENTED),
    ],
)
async def test_what_is_proposed_does_it(tmp_path: Path, command: str, task: str, file: str, expected: str) -> None:
    (tmp_path / "sensors.json").write_text(SENSORS)
    (tmp_path / "one.json").write_text(LINE)
    instead = (commands.doubt(command, task) or "").partition(INSTEAD)[2]
    assert instead
    assert commands.doubt(instead, task) is None
    await anyio.run_process(["bash", "-c", instead], cwd=tmp_path)
    assert (tmp_path / file).read_text() == expected


@pytest.mark.parametrize(
    ("command", "task"),
    [
        ("jq -r '.[] | [.id] | @csv' sensors.json", COLUMNS),
        ("jq -r '.[] | @csv' sensors.json", "as CSV"),
        ("jq '.key' one.json", ""),
        ("jq 'keys' one.json", ""),
        ("sed -i 's/a/b/' one.json", "replace a by b in one.json"),
    ],
)
def test_other_commands_are_done(command: str, task: str) -> None:
    assert commands.doubt(command, task) is None
