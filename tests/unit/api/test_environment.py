"""A sandbox by itself, from Python."""

import io
import tarfile
from pathlib import Path

import anyio
import pytest

from stockade import Folder, Sandbox
from stockade.api.archive import unpack
from stockade.core.errors import ChangedOnHost, SandboxDied, UsageError


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_commands_share_a_shell_and_time_out() -> None:
    with Sandbox() as box:
        assert box.execute("x=1; echo out; echo err >&2; (exit 3)") == box.execute("echo out; echo err >&2; (exit 3)")
        assert box.execute("echo $x").output == "1\n"
        done = box.execute("exit 5")
        assert done.return_code == 5
        assert box.execute("sleep 60", timeout=0.3).return_code == 124
        assert box.execute("echo on").output == "on\n"


def test_what_was_killed_says_so() -> None:
    box = Sandbox()
    with pytest.raises(SandboxDied, match="not running"):
        box.execute("true")
    with box:
        box.kill()
        box.kill()
        with pytest.raises(SandboxDied):
            box.execute("true")
    with box:
        assert box.execute("echo again").output == "again\n"


def test_an_overlay_is_thrown_away_unless_it_is_applied(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    with Sandbox(folder=Folder(folder)) as box:
        box.execute("echo 1 > a")
        assert [change.path for change in box.changes] == ["a"]
    assert list(folder.iterdir()) == []
    assert list((tmp_path / "state" / "stockade" / "runs").iterdir()) == []
    with Sandbox(folder) as box:
        box.execute("echo 1 > a")
        assert box.apply() == ("a",)
    assert (folder / "a").read_text() == "1\n"


def test_what_the_user_changes_between_two_commands_is_not_lost(tmp_path: Path) -> None:
    """The second one replaces the file, so that the bot's is newer than the user's."""
    file = tmp_path / "work" / "a"
    file.parent.mkdir()
    file.write_text("1\n2\n")
    with Sandbox(file.parent) as box:
        box.execute("echo bot >> a")
        file.write_text("1\n2\nmine\n")
        box.execute("sed -i s/2/two/ a")
        with pytest.raises(ChangedOnHost, match="changed on the host"):
            box.apply()
    assert file.read_text() == "1\n2\nmine\n"


def test_nothing_writes_any_more_to_what_is_applied(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    with Sandbox(folder) as box:
        box.execute("echo 1 > a; (while :; do echo x >> a; done) >/dev/null 2>&1 &")
        assert box.apply() == ("a",)
        size = (folder / "a").stat().st_size
        with pytest.raises(SandboxDied):
            box.execute("true")
    assert (folder / "a").stat().st_size == size
    assert [entry.name for entry in (tmp_path / "state" / "stockade" / "runs").glob("*/*")] == ["0.journal"]
    assert box.undo() == ("a",)
    assert list(folder.iterdir()) == []


def test_files_go_in_and_out(tmp_path: Path) -> None:
    source = tmp_path / "in"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "ä b.bin").write_bytes(bytes(range(256)))
    with Sandbox() as box:
        box.copy_in(source, "/tmp/x/y")
        assert box.execute("cd /tmp/x/y/deep && sha256sum 'ä b.bin' | cut -c1-8").output == "40aff2e9\n"
        box.copy_in(source / "deep" / "ä b.bin", "/tmp/one")
        box.execute("ln -s y /tmp/x/link; echo 7 > /tmp/x/y/seven")
        box.copy_out("/tmp/x", tmp_path / "out")
        assert (tmp_path / "out" / "y" / "seven").read_text() == "7\n"
        assert (tmp_path / "out" / "y" / "deep" / "ä b.bin").read_bytes() == bytes(range(256))
        box.copy_out("/tmp/one", tmp_path / "one")
        assert (tmp_path / "one").read_bytes() == bytes(range(256))
        with pytest.raises(UsageError, match="there already"):
            box.copy_out("/tmp/one", tmp_path / "one")
        with pytest.raises(UsageError, match="no such file"):
            box.copy_in(tmp_path / "nothing", "/tmp/z")
        with pytest.raises(UsageError, match="cannot be copied"):
            box.copy_out("/tmp/nothing", tmp_path / "z")


def test_links_that_lead_out_do_not_come_out(tmp_path: Path) -> None:
    with Sandbox() as box:
        box.execute("mkdir /tmp/e && ln -s /etc/passwd /tmp/e/absolute")
        with pytest.raises(UsageError, match="cannot be written"):
            box.copy_out("/tmp/e", tmp_path / "e")
        box.execute("mkdir /tmp/r && ln -s ../../../../etc/passwd /tmp/r/relative")
        with pytest.raises(UsageError, match="cannot be written"):
            box.copy_out("/tmp/r", tmp_path / "r")


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "other", "x/../../out"])
def test_an_archive_that_lies_writes_nothing(tmp_path: Path, name: str) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(UsageError):
        unpack(buffer.getvalue(), "x", tmp_path / "here" / "x")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_read_only_folder_stays_so(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with Sandbox(folder=Folder(tmp_path / "f", "ro")) as box:
        assert box.execute("touch a").return_code != 0
        assert box.execute("mount -o remount,rw /workspace").return_code != 0
        assert box.changes == ()


def test_with_async_with_one_awaits() -> None:
    async def inside() -> None:
        async with Sandbox() as box:
            assert (await box.aexecute("echo 1")).output == "1\n"
            with pytest.raises(UsageError, match="aexecute"):
                await anyio.to_thread.run_sync(box.execute, "echo 1")

    anyio.run(inside)


def test_programs_of_tools_are_in_it(tmp_path: Path) -> None:
    (tmp_path / "hi.sh").write_text("#!/bin/sh\necho hi $WHO\n")
    (tmp_path / "hi.toml").write_text(
        'name = "hi"\nenvironment = {WHO = "you"}\n'
        'files = [{host = "hi.sh", inside = "/usr/local/bin/hi", mode = "755"}]\n'
    )
    with Sandbox(tool=[str(tmp_path / "hi.toml")]) as box:
        assert box.execute("hi").output == "hi you\n"
    with pytest.raises(UsageError, match="not a program"):
        Sandbox(tool=["memory"]).__enter__()


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="memry"):
        Sandbox(memry="1G")
    with pytest.raises(UsageError, match="memory"):
        Sandbox(memory="much")
    with pytest.raises(ValueError, match="mode"):
        Folder("x", "write")  # type: ignore[arg-type]
