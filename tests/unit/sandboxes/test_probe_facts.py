"""Which bubblewrap is used, and what is said when none can be."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from stockade.core.errors import PolicyNotEnforceable, SandboxFailed
from stockade_sandbox.backends import host_info as facts
from stockade_sandbox.backends.bubblewrap.explain import Causes, last_line, namespace_hint, start_failure


def make_bwrap(folder: Path, version: str, mode: int = 0o755) -> Path:
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\necho bubblewrap {version}\n")
    path.chmod(mode)
    return path


@pytest.fixture
def trusted() -> Path:
    """A folder only root can write to, with no sticky /tmp above that matters."""
    folder = Path("/usr/local/lib/stockade-test-bwrap")
    folder.mkdir(mode=0o755)
    return folder


@pytest.fixture(autouse=True)
def remove() -> "object":
    yield
    folder = Path("/usr/local/lib/stockade-test-bwrap")
    for path in folder.glob("*"):
        path.unlink()
    if folder.exists():
        folder.rmdir()


@pytest.mark.parametrize(
    ("version", "mode", "why"),
    [
        ("0.4.1", 0o755, "too old"),
        ("zero", 0o755, "does not say"),
        ("0.8.0", 0o4755, "set-uid"),
        ("0.8.0", 0o777, "could be replaced"),
    ],
)
@pytest.mark.root
def test_a_system_bubblewrap_that_is_not_used(trusted: Path, version: str, mode: int, why: str) -> None:
    make_bwrap(trusted, version, mode)
    found, reason = facts.system_bwrap(str(trusted))
    assert found is None
    assert why in reason


@pytest.mark.root
def test_a_system_bubblewrap_that_is(trusted: Path) -> None:
    path = make_bwrap(trusted, "0.9.0")
    assert facts.system_bwrap(str(trusted))[0] == facts.Bwrap((0, 9, 0), path=str(path))


def test_no_bubblewrap_on_the_path(tmp_path: Path) -> None:
    assert facts.system_bwrap(str(tmp_path)) == (None, f"no bwrap in {tmp_path}")


def test_the_packaged_one_has_the_pinned_bytes() -> None:
    found, reason = facts.packaged_bwrap()
    assert found is not None, reason
    assert found.package is not None


def test_a_changed_package_is_refused(tmp_path: Path) -> None:
    for name in facts.PINNED_FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"evil")
    with pytest.raises(SandboxFailed, match="not the file that was checked"):
        facts.pinned_files(str(tmp_path))


def test_sandbox_uids_are_in_their_range() -> None:
    uid = facts.fresh_sandbox_uid()
    assert uid is None or facts.is_sandbox_uid(uid)
    assert not facts.is_sandbox_uid(0)
    assert not facts.is_sandbox_uid(65534)


@pytest.mark.parametrize(
    ("causes", "words"),
    [
        (Causes(clone_off=True), "unprivileged_userns_clone=1"),
        (Causes(none_allowed=True), "max_user_namespaces"),
        (Causes(apparmor=True), "sudo apparmor_parser -r /etc/apparmor.d/stockade"),
        (Causes(container=True, podman=True), "--security-opt unmask=ALL"),
        (Causes(container=True), "root needs --cap-add SYS_ADMIN"),
        (Causes(container=True, apparmor=True), "--security-opt seccomp=unconfined"),
        (Causes(), "doctor"),
    ],
)
def test_way_out_for_namespaces(causes: Causes, words: str) -> None:
    assert words in namespace_hint(causes)


def test_causes_are_read_from_the_machine(tmp_path: Path) -> None:
    (tmp_path / "proc/sys/user").mkdir(parents=True)
    (tmp_path / "proc/sys/user/max_user_namespaces").write_text("0\n")
    (tmp_path / ".dockerenv").touch()
    assert Causes.of_this_machine(tmp_path) == Causes(none_allowed=True, container=True)


def test_ubuntu_s_restriction_is_met_with_a_profile_to_paste(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the script that was started, without links: odd names too, as one line of shell and one of AppArmor."""
    restriction = tmp_path / "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
    restriction.parent.mkdir(parents=True)
    restriction.write_text("1\n")
    (tmp_path / "it's {odd}").mkdir()
    script = tmp_path / "it's {odd}" / "stockade"
    script.touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/stockade").symlink_to(script)
    monkeypatch.setattr("sys.argv", [str(tmp_path / "bin/stockade")])
    hint = namespace_hint(Causes.of_this_machine(tmp_path))
    echo, profile, pipe, *rest = shlex.split(hint.partition("this program: ")[2])
    assert (echo, pipe) == ("echo", "|")
    assert rest == shlex.split("sudo tee /etc/apparmor.d/stockade && sudo apparmor_parser -r /etc/apparmor.d/stockade")
    path = str(script).replace("{", "\\{").replace("}", "\\}")
    head = "abi <abi/4.0>, include <tunables/global>"
    assert profile == f'{head} profile stockade "{path}" flags=(unconfined) {{ userns, }}'


def test_a_python_of_its_own_is_what_the_profile_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["-c"])
    assert os.path.realpath(sys.executable) in namespace_hint(Causes(apparmor=True))


@pytest.mark.parametrize(
    ("stderr", "kind", "words"),
    [
        ("launch: userns unshare: Operation not permitted\n", PolicyNotEnforceable, "a namespace could not be made"),
        ("launch: idmap 0: Invalid argument", PolicyNotEnforceable, "owner cannot be mapped"),
        ("launch: overlay /mnt/folder-0: Invalid argument", PolicyNotEnforceable, "overlay could not be mounted"),
        ("launch: tree /x: No such file or directory", SandboxFailed, "/x: No such file"),
        ("launch: cgroup /c: Permission denied", SandboxFailed, "control group"),
        ("launch: dir /mnt/scratch: No space left on device", SandboxFailed, "launcher failed"),
        ("launch: fds 13: Invalid argument", SandboxFailed, "too few open files"),
        ("bwrap: Creating new namespace failed: Operation not permitted", PolicyNotEnforceable, "namespaces"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", PolicyNotEnforceable, "new /proc"),
        ("launch: proc /tmp/proc: Operation not permitted", PolicyNotEnforceable, "new /proc"),
        ("bwrap: Can't find source path /x\n\n", SandboxFailed, "Can't find source path"),
        ("", SandboxFailed, "with status 9"),
    ],
)
def test_start_failures_name_cause_and_way_out(stderr: str, kind: type[Exception], words: str) -> None:
    error = start_failure(stderr, 9, Causes())
    assert type(error) is kind
    assert words in error.message
    assert error.hint


def test_last_line_is_short_and_printable() -> None:
    assert last_line("a\n\x1b[31mred\n \n") == "?[31mred"
    assert len(last_line("x" * 10_000)) == 300


def test_root_of_a_user_namespace_without_ids_is_refused(tmp_path: Path) -> None:
    (tmp_path / "map").write_text("         0       1000          1\n         1     100000      65536\n")
    with pytest.raises(PolicyNotEnforceable, match="too few user ids"):
        facts.fresh_sandbox_uid(tmp_path / "map")
    (tmp_path / "whole").write_text("         0          0 4294967295\n")
    assert facts.is_sandbox_uid(facts.fresh_sandbox_uid(tmp_path / "whole") or 0)
