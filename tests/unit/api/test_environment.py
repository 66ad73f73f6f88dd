"""A sandbox by Microbots' name and calls, from Python; all else of it is in tests/unit/sandboxes/test_api.py."""

from pathlib import Path

import pytest

from stockade import Environment, Execution, Folder
from stockade.core.errors import SandboxDied, UsageError


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_commands_share_a_shell_and_time_out() -> None:
    with Environment() as box:
        assert box.execute("x=1; echo out; echo err >&2; (exit 3)") == Execution(3, "out\n", "err\n")
        assert box.execute("echo $x").output == "1\n"
        done = box.execute("exit 5")
        assert done.return_code == 5
        assert box.execute("sleep 60", timeout=0.3).return_code == 124
        assert box.execute("echo on").output == "on\n"


def test_what_was_killed_says_so() -> None:
    box = Environment()
    with pytest.raises(SandboxDied, match="not running"):
        box.execute("true")
    with box:
        box.kill()
        box.kill()
        with pytest.raises(SandboxDied):
            box.execute("true")
    with box:
        assert box.execute("echo again").output == "again\n"


def test_its_permission_is_held(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    for box in (Environment(tmp_path / "f", "READ_ONLY"), Environment(Folder(tmp_path / "f", "ro"))):
        with box:
            assert box.execute("touch a").return_code != 0
            assert box.execute("mount -o remount,rw /workspace").return_code != 0
    with Environment(tmp_path / "f", "READ_WRITE") as box:
        assert box.execute("touch a").return_code == 0
        assert list((tmp_path / "f").iterdir()) == []
        assert box.apply() == ("a",)


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="no permission 'WRITE'"):
        Environment("x", "WRITE")
    with pytest.raises(ValueError, match="mode"):
        Folder("x", "write")  # type: ignore[arg-type]
