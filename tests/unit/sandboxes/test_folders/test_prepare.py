import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from stockade.core.errors import UsageError
from stockade_sandbox.overlay import paths, prepare_layer
from stockade_sandbox.overlay.prepare import OwnersWalk, check_space, foreign
from stockade_sandbox.policy import FolderMode, FolderRule
from tests.unit.sandboxes.test_folders.conftest import MakeBench
from tests.unit.sandboxes.test_folders.helpers import Bench

CAN: Callable[[Path], str | None] = lambda _: None  # noqa: E731


@pytest.mark.parametrize(
    ("folder", "cause"),
    [
        ("/", "whole machine"),
        ("/root", "home"),
        ("/home", "home"),
        ("/proc", "system"),
        ("/proc/self", "system"),
        ("/sys/kernel", "system"),
        ("/dev", "system"),
        ("/etc", "system"),
        ("/etc/ssl", "system"),
        ("/usr/bin", "system"),
        ("/bin", "system"),
        ("/tmp", "everybody"),
        ("/var", "everybody"),
        ("/no/such/folder", "no such folder"),
        ("/etc/passwd", "not a folder"),
        ("", "not a folder"),
        ("a\0b", "not a folder"),
    ],
)
@pytest.mark.parametrize("mode", ["ro", "overlay", "rw"])
def test_folders_that_are_not_given(tmp_path: Path, folder: str, cause: str, mode: FolderMode) -> None:
    rule = FolderRule(host=folder, mode=mode)
    with pytest.raises(UsageError, match=cause) as failed:
        prepare_layer(rule, tmp_path / "layers", sandbox_uid=0, can_overlay=CAN)
    assert failed.value.hint
    assert not (tmp_path / "layers").exists()


def test_own_folders_are_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "account"
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    state = home / "state/stockade"
    (state / "runs").mkdir(parents=True)
    (tmp_path / "l/below").mkdir(parents=True)
    for folder in (state, state / "runs", home, tmp_path, tmp_path / "l", tmp_path / "l/below"):
        with pytest.raises(UsageError, match="its own files"):
            prepare_layer(FolderRule(host=str(folder)), tmp_path / "l", sandbox_uid=0, can_overlay=CAN)


def test_a_link_is_the_folder_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "trap").symlink_to("/etc")
    modes: tuple[FolderMode, ...] = ("ro", "rw")
    for mode in modes:
        rule = FolderRule(host=str(tmp_path / "link"), mode=mode)
        layer = prepare_layer(rule, tmp_path / "layers", sandbox_uid=0, can_overlay=CAN)
        assert (layer.host, layer.strategy, layer.layer) == (str(tmp_path / "real"), "direct", None)
    with pytest.raises(UsageError, match="/etc belongs to the system"):
        prepare_layer(FolderRule(host=str(tmp_path / "trap")), tmp_path / "layers", sandbox_uid=0, can_overlay=CAN)


def test_layers_are_private_and_numbered(bench: Bench) -> None:
    bench.write("f", "1")
    first = bench.begin()
    second = bench.begin()
    assert first.layer is not None
    assert second.layer is not None
    assert [Path(first.layer).name, Path(second.layer).name] == ["0", "1"]
    assert Path(first.layer).stat().st_mode & 0o777 == 0o700


def test_files_of_others_are_copied(tmp_path: Path) -> None:
    folder = tmp_path / "host"
    (folder / "d").mkdir(parents=True)
    (folder / "d/f").touch()
    assert foreign(folder, lambda: False) is None
    os.chown(folder / "d/f", -1, 12)
    assert foreign(folder, lambda: False) == f"{folder}/d/f"
    assert foreign(folder, lambda: True) is None
    os.chown(folder, -1, 12)
    assert foreign(folder, lambda: True) == str(folder)
    os.chown(folder, -1, os.getegid())
    layer = prepare_layer(FolderRule(host=str(folder)), tmp_path / "l", sandbox_uid=None, can_overlay=CAN)
    assert layer.strategy == "copy"


@pytest.mark.root
def test_what_a_short_look_does_not_reach_is_named_once_it_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "host"
    (folder / "a/b/c").mkdir(parents=True)
    (folder / "a/b/c/f").touch()
    os.chown(folder / "a/b/c/f", 12, -1)
    rule = FolderRule(host=str(folder), inside="/work")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stockade_sandbox.overlay.prepare._WALK_S", -1)
        layer = prepare_layer(rule, tmp_path / "l", sandbox_uid=None, can_overlay=CAN)
    assert layer.strategy == "overlay"
    told: list[str] = []
    walk = OwnersWalk([layer], told.append)
    walk._thread.join()
    walk.stop()
    assert told == ["/work/a/b/c/f belongs to somebody else on the host: it can be read, not changed"]


def test_a_copy_is_faithful(make_bench: MakeBench) -> None:
    bench = make_bench("copy")
    bench.write("a", "1", 0o640)
    bench.write("run", "#!/bin/sh\n", 0o755)
    bench.write("deep/er/f", "x", 0o400)
    (bench.host / "l").symlink_to("/etc/passwd")
    (bench.host / "deep").chmod(0o500)
    with (bench.host / "sparse").open("wb") as out:
        out.truncate(5 << 30)
    os.mkfifo(bench.host / "pipe")
    os.utime(bench.host / "a", ns=(5, 7))
    seen: list[tuple[int, int]] = []
    layer = prepare_layer(
        FolderRule(host=str(bench.host)),
        bench.top / "l",
        sandbox_uid=1001,
        can_overlay=lambda _: "no",
        progress=lambda done, total: seen.append((done, total)),
    )
    bench.begun = layer
    shown = bench.shown()
    del shown["pipe"]
    assert bench.bash(":") == shown
    copy = bench.place / "copy"
    assert (copy / "a").stat().st_mtime_ns == 7
    assert (copy / "sparse").stat().st_blocks < 100
    assert {(copy / name).lstat().st_uid for name in (".", "a", "l", "deep", "deep/er/f")} == {1001}
    assert bench.review.skipped(layer) == ("pipe: not a file, folder or symlink",)
    assert seen[-1][0] == seen[-1][1]
    assert bench.changes() == ()


def test_a_copy_notices_a_change_that_hides_its_time(make_bench: MakeBench) -> None:
    bench = make_bench("copy")
    bench.write("a", "1234")
    bench.bash("touch -r a ../stamp; printf 4321 > a; touch -r ../stamp a; rm ../stamp")
    assert bench.kinds() == {"a": "modified"}


def test_a_copy_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs 1048592 MiB"):
        check_space(1 << 40, tmp_path, Path("/some/folder"))
    check_space(1, tmp_path, Path("/some/folder"))


def test_accounts_are_asked_for_again_when_they_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = [pwd.struct_passwd(("a", "x", 1001, 1001, "", str(tmp_path / "a"), ""))]
    monkeypatch.setattr(pwd, "getpwall", lambda: list(accounts))
    file = tmp_path / "passwd"
    file.touch()
    os.utime(file, ns=(1, 1))
    assert str(tmp_path / "a") in paths.homes(file)
    accounts.append(pwd.struct_passwd(("b", "x", 1002, 1002, "", str(tmp_path / "b"), "")))
    os.utime(file, ns=(2, 2))
    assert str(tmp_path / "b") in paths.homes(file)
