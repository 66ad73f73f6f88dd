"""What host and bot both changed, merged three ways by a real git; and the host's side of it, shown."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from stockade.core.errors import ChangedOnHost, UsageError
from stockade_sandbox.overlay import HostSide, merging
from stockade_sandbox.overlay.safe_fs import LARGE
from stockade_sandbox.results import Change
from tests.unit.sandboxes.test_folders.children import cut_off_at
from tests.unit.sandboxes.test_folders.helpers import Bench
from tests.unit.sandboxes.test_folders.test_base import looked

LINES = "".join(f"line {number}\n" for number in range(1, 9))
FIRST = "sed -i '1s/.*/{0} first/' {1}"
LAST = "sed -i '$s/.*/{0} last/' {1}"


def on_host(bench: Bench, script: str) -> None:
    subprocess.run(["bash", "-ec", script], cwd=bench.host, check=True)


def apply(bench: Bench, *, force: bool = False) -> tuple[str, ...]:
    return bench.review.apply(bench.layer, bench.changes(), merge=True, force=force)


def left(bench: Bench) -> dict[str, str]:
    return bench.review.conflicts(bench.layer, bench.changes(), merge=True)


def text(bench: Bench, name: str) -> str:
    return (bench.host / name).read_text()


def test_both_sides_are_in_what_is_merged(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        bench.write(name, LINES)
    looked(bench, f"{FIRST.format('bot', 'a')}; chmod 755 a; echo bot > n; echo bot > b; {LAST.format('bot', 'c')}")
    on_host(bench, f"{LAST.format('mine', 'a')}; {LAST.format('bot', 'c')}")
    assert bench.review.conflicts(bench.layer, bench.changes()) == {"a": "changed on the host since the run began"}
    with pytest.raises(ChangedOnHost):
        bench.apply()
    assert left(bench) == {}
    assert apply(bench) == ("a", "b", "n")
    assert text(bench, "a") == LINES.replace("line 1\n", "bot first\n").replace("line 8\n", "mine last\n")
    assert (bench.host / "a").stat().st_mode & 0o777 == 0o755
    assert (text(bench, "b"), text(bench, "n")) == ("bot\n", "bot\n")
    assert bench.changes() == ()


def test_nothing_of_it_is_made_in_the_folder_for_temporary_files(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a kill would leave it for good: there is none here."""
    bench.write("a", LINES)
    looked(bench, FIRST.format("bot", "a"))
    on_host(bench, LAST.format("mine", "a"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert left(bench) == {}
    assert apply(bench) == ("a",)


def test_what_is_merged_is_decided_on_and_merged_again_from_there(bench: Bench) -> None:
    bench.write("a", LINES)
    snapshots = looked(bench, FIRST.format("bot", "a"))
    on_host(bench, LAST.format("mine", "a"))
    cut_off_at("done", lambda: apply(bench))
    bench.review.recover(bench.layer)
    assert bench.changes() == ()
    bench.bash("sed -i '4s/.*/bot fourth/' a")
    snapshots.take()
    assert apply(bench) == ("a",)
    wanted = {"line 1\n": "bot first\n", "line 4\n": "bot fourth\n", "line 8\n": "mine last\n"}
    merged = LINES
    for old, new in wanted.items():
        merged = merged.replace(old, new)
    assert text(bench, "a") == merged


REASONS = {
    "both changed the same lines": (FIRST.format("bot", "a"), FIRST.format("mine", "a")),
    "you removed it and the bot changed it": (FIRST.format("bot", "a"), "rm a"),
    "the bot removed it and you changed it": ("rm a", FIRST.format("mine", "a")),
    "both made it, with other content": ("echo bot > n", "echo mine > n"),
    "only files can be merged": ("ln -sfn b l", "ln -sfn c l"),
    "it is no text": ("printf '\\0bot' >> z", "printf '\\0mine' >> z"),
    "both changed its mode": ("echo bot >> a; chmod 755 a", "chmod 600 a"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_what_cannot_be_merged_stays_and_says_why(bench: Bench, reason: str) -> None:
    bench.write("a", LINES)
    bench.write("z", b"\0binary")
    bench.write("clean", LINES)
    (bench.host / "l").symlink_to("a")
    bots, mine = REASONS[reason]
    looked(bench, f"{bots}; {FIRST.format('bot', 'clean')}")
    on_host(bench, f"{mine}; {LAST.format('mine', 'clean')}")
    before, stays = bench.shown(), left(bench)
    assert list(stays.values()) == [reason]
    with pytest.raises(ChangedOnHost, match=f"began: '{next(iter(stays))}'"):
        apply(bench)
    assert bench.shown() == before
    rest = [change for change in bench.changes() if change.path not in stays]
    assert bench.review.apply(bench.layer, rest, merge=True) == ("clean",)
    assert text(bench, "clean") == LINES.replace("line 1\n", "bot first\n").replace("line 8\n", "mine last\n")
    assert [change.path for change in bench.changes()] == list(stays)
    assert list(left(bench).values()) == [reason]
    assert apply(bench, force=True) == tuple(stays)
    assert bench.changes() == ()


def test_a_large_file_is_not_merged(bench: Bench) -> None:
    with (bench.host / "a").open("wb") as out:
        out.truncate(LARGE + 1)
    looked(bench, "echo bot >> a")
    on_host(bench, "echo mine >> a")
    assert list(left(bench).values()) == [
        "only its hash is kept: it is larger than 64 MiB, or was changed before the bot did"
    ]


def test_what_changed_while_the_bot_changed_it_is_not_merged(upper_bench: Bench) -> None:
    upper_bench.write("a", LINES)
    upper_bench.bash(FIRST.format("bot", "a"))
    on_host(upper_bench, LAST.format("mine", "a"))
    upper_bench.review.seal(upper_bench.layer)
    assert left(upper_bench) == {"a": "you changed it while the bot did: what it was before is not known"}


def test_git_s_own_configuration_does_not_count(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    config.write_text("[merge]\n\tconflictStyle = nonsense\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    bench.write("a", LINES)
    looked(bench, FIRST.format("bot", "a"))
    on_host(bench, LAST.format("mine", "a"))
    assert apply(bench) == ("a",)


def test_without_git_nothing_is_written(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write("a", LINES)
    looked(bench, f"{FIRST.format('bot', 'a')}; echo bot > n")
    on_host(bench, LAST.format("mine", "a"))
    before, found = bench.shown(), bench.changes()
    monkeypatch.setattr(merging, "system_git", lambda: None)
    with pytest.raises(UsageError, match="git, which is not installed") as failed:
        bench.review.apply(bench.layer, found, merge=True)
    assert failed.value.exit_status == 2
    assert bench.shown() == before
    rest = [change for change in found if change.path == "n"]
    assert bench.review.apply(bench.layer, rest, merge=True) == ("n",)


def host_side(bench: Bench) -> dict[str, tuple[Change, str]]:
    side = HostSide()
    return {change.path: (change, side.unified_diff(bench.layer, change)) for change in side.changes(bench.layer)}


def test_the_host_s_side_of_what_the_bot_touched(bench: Bench) -> None:
    for name in ("a", "gone", "mode", "same", "untouched", "was"):
        bench.write(name, LINES)
    (bench.host / "l").symlink_to("a")
    looked(bench, "for f in a gone mode same was; do echo bot >> $f; done; ln -sfn b l; echo bot > n; rm was")
    on_host(
        bench,
        f"{LAST.format('mine', 'a')}; rm gone; chmod 600 mode; ln -sfn c l; echo mine > n; echo mine >> untouched",
    )
    touched = {"a": "modified", "gone": "deleted", "l": "modified", "mode": "mode", "n": "added"}
    found = host_side(bench)
    assert {path: change.kind for path, (change, _) in found.items()} == touched
    assert (found["a"][0].added_lines, found["a"][0].removed_lines) == (1, 1)
    assert "-line 8\n+mine last\n" in found["a"][1]
    assert "bot" not in found["a"][1]
    assert "deleted file mode" in found["gone"][1]
    assert "-line 1\n" in found["gone"][1]
    assert "old mode 100644\nnew mode 100600\n" in found["mode"][1]
    assert "-a\n" in found["l"][1]
    assert "+c\n" in found["l"][1]
    assert "+mine\n" in found["n"][1]


def test_the_host_s_side_of_what_is_not_known(upper_bench: Bench) -> None:
    upper_bench.write("a", LINES)
    upper_bench.bash("echo bot > a")
    upper_bench.write("a", "mine\n")
    assert host_side(upper_bench)["a"][1] == "File a changed while the bot changed it: what it was is not known\n"


def test_the_host_s_side_of_what_has_no_lines(bench: Bench) -> None:
    bench.write("z", b"\0one")
    with (bench.host / "large").open("wb") as out:
        out.truncate(LARGE + 1)
    looked(bench, "echo bot >> z; echo bot >> large")
    bench.write("z", os.urandom(20) + b"\0")
    on_host(bench, "echo mine >> large")
    found = host_side(bench)
    assert found["z"][1] == "Binary file z (4 bytes)\n"
    assert found["large"][1] == f"File large changed; of what it was only the hash is kept ({LARGE + 1} bytes)\n"
