"""`stockade acp` from acpx, a client of the protocol that is not of its SDK."""

import json
import shlex
import subprocess
import sys
from typing import Any

import pytest

from tests.editors.conftest import PATIENCE_S, Stand, finish, shell
from tests.support.toolchains import acpx

pytestmark = pytest.mark.toolchain
COUNT = shell("wc -l < data.csv > count.txt; sed -i s/a/A/ data.csv")


def ask(stand: Stand, *words: str, model: str) -> "subprocess.CompletedProcess[str]":
    agent = shlex.join([sys.executable, *stand.arguments(model=model)])
    environment = {**stand.environment, "HOME": str(stand.tmp)}
    return subprocess.run(
        [acpx(), "--agent", agent, "--cwd", stand.demo, *words],
        env=environment, cwd=stand.tmp, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def messages(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def test_what_is_approved_is_applied(stand: Stand) -> None:
    done = ask(
        stand, "--approve-all", "--format", "json", "exec", "Count", model=stand.script(COUNT, finish("3 lines"))
    )
    assert done.returncode == 0, done.stderr
    assert stand.tree() == {"data.csv": "A\nb\nc\n", "count.txt": "3\n"}
    updates = [one["params"]["update"] for one in messages(done.stdout) if one.get("method") == "session/update"]
    kinds = {one["sessionUpdate"] for one in updates}
    assert {"tool_call", "tool_call_update", "agent_message_chunk"} <= kinds
    assert "3 lines" in "".join(
        one["content"]["text"] for one in updates if one["sessionUpdate"] == "agent_message_chunk"
    )
    diffs = [
        part
        for one in updates
        for part in one.get("content") or ()
        if isinstance(part, dict) and part.get("type") == "diff"
    ]
    assert {part["path"].rpartition("/")[2] for part in diffs} == {"data.csv", "count.txt"}
    asked = [one for one in messages(done.stdout) if one.get("method") == "session/request_permission"]
    assert len(asked) == 1


def test_what_is_denied_stays_apart(stand: Stand) -> None:
    done = ask(stand, "--deny-all", "exec", "Count", model=stand.script(COUNT, finish("3 lines")))
    assert "3 lines" in done.stdout, done.stderr
    assert stand.tree() == {"data.csv": "a\nb\nc\n"}
    assert len(stand.layers()) == 1


def test_a_session_goes_on_over_calls(stand: Stand) -> None:
    model = stand.script(shell("word=kept; echo 1 > one"), finish("first"), shell("echo $word > two"), finish("second"))
    try:
        for words in (["sessions", "new"], ["prompt", "Begin"], ["prompt", "Go on"]):
            done = ask(stand, "--approve-all", *words, model=model)
            assert done.returncode == 0, (words, done.stdout, done.stderr)
        assert "second" in done.stdout
    finally:
        ended = ask(stand, "sessions", "close", model=model)
    assert ended.returncode == 0, ended.stderr
    assert stand.tree() == {"data.csv": "a\nb\nc\n", "one": "1\n", "two": "kept\n"}
