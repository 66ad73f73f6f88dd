"""What `--approve rules` allows has no effect: lines built from Bash's grammar are run, watched, where it does."""

import itertools
from pathlib import Path

import pytest

from stockade.approval.line import NotPlainError, read
from stockade.approval.rules import Allowed, RuleSet, built_in
from tests.support.bash_fuzz import Builder, watched
from tests.support.scale import SCALE

AT_ONCE, BATCHES = 250, max(1, round(20 * SCALE))
"""Lines that are run; 100,000 in all by `make test-long`."""


def allowed(rules: RuleSet, line: str) -> bool:
    try:
        return all(rules.judge(one).decision == "allow" for one in read(line))
    except NotPlainError:
        return False


@pytest.mark.parametrize("seed", range(BATCHES))
def test_what_is_allowed_has_no_effect(tmp_path: Path, seed: int) -> None:
    built = list(itertools.islice(Builder(seed).lines(), 4 * AT_ONCE))
    found = [line for line in built if allowed(built_in(), line)][:AT_ONCE]
    assert len(found) == AT_ONCE, "a quarter of what is built is allowed, or this shows nothing"
    assert watched(found, tmp_path) == []


@pytest.mark.parametrize("harm", ["sort", "uniq", "find", "sed", "xxd", "env", "command", "test", "touch", "tee"])
def test_a_table_with_one_harmful_entry_is_found_out(tmp_path: Path, harm: str) -> None:
    weakened = RuleSet(command=(*built_in().command, Allowed(name=harm, options="*")))
    built = Builder(1, (harm, "cat", harm)).lines()
    found = (line for line in built if allowed(weakened, line) and not allowed(built_in(), line))
    assert watched(list(itertools.islice(found, 250)), tmp_path) != []


def test_what_only_the_trace_shows_is_seen(tmp_path: Path) -> None:
    """On the first day no line was: the marks between them were in no trace."""
    connecting = "python3 -c 'import socket; socket.socket().connect((\"192.0.2.1\", 80))'"
    lines = ["cat a.txt", "kill -USR1 $$", "ls", connecting, "seq 9 | cat", "$x$PWD/./ls -v"]
    found = {(effect.line, effect.what.partition("(")[0]) for effect in watched(lines, tmp_path)}
    assert found >= {("kill -USR1 $$", "kill"), (connecting, "connect"), ("$x$PWD/./ls -v", "started /mnt/./ls")}
    assert {line for line, _ in found} <= {*lines[1::2], "(one of them)"}
