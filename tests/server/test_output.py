"""What commands write while they run, beside the record's events."""

import httpx2

from stockade.core.secrets import build_redactor
from stockade.server.live import _KEPT_CHARS, LiveOutput
from stockade.testing import say
from tests.server.conftest import DONE, Stage, Told, begin, stream, until

LOUD = "echo one; echo two >&2; while [ ! -e go ]; do sleep 0.05; done; echo three"


def test_output_comes_while_a_command_runs_and_takes_no_number(stage: Stage, admin: httpx2.Client) -> None:
    run = begin(admin, model=stage.script("loud", say("shell", command=LOUD), DONE))
    heard, shown = "", list[Told]()
    for one in stream(admin, run, output=True):
        shown.append(one)
        if one.name == "output":
            heard += one.data["text"]
            if "one" in heard and "two" in heard:
                break
    assert [one.name for one in shown if one.id is not None][-1] == "action_started"
    assert all(one.id is None for one in shown if one.name == "output")
    admin.post(f"/v1/runs/{run}/cancel")
    last = max(one.id for one in shown if one.id is not None)
    whole = until(admin, run, "end")
    assert [*(one for one in shown if one.id is not None), *until(admin, run, "end", last)] == whole
    assert "output" not in {one.name for one in whole}


def test_secrets_are_hidden_and_the_last_is_kept() -> None:
    heard = list[int]()
    output = LiveOutput(build_redactor({"API_TOKEN": "plover-4711-xyzzy"}, {}, ("API_TOKEN",)), lambda: heard.append(1))
    for piece in (b"key: plover-47", b"11-xyzzy \xe2", b"\x82\xac\n"):
        output.add("stdout", piece)
    mark, pieces = output.since(0)
    text = "".join(one.text for one in pieces)
    assert ("plover" in text, "\u20ac" in text, len(heard)) == (False, True, 3)
    assert output.since(mark) == (mark, [])
    for _ in range(5):
        output.add("stderr", b"x" * (_KEPT_CHARS // 2) + b"\n")
    mark, pieces = output.since(mark)
    assert sum(len(one.text) for one in pieces) <= _KEPT_CHARS
    assert pieces[0].missed > _KEPT_CHARS
    output.end()
    assert output.since(0) == (mark, [])
