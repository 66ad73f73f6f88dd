"""What `unconfined` says and refuses. What it does is run in tests/conformance/test_sandbox_unconfined.py."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from stockade.core.errors import PolicyNotEnforceable, UsageError
from stockade_sandbox.backends.unconfined import ALLOW_ROOT, UnconfinedSandbox, end_tree, refuse
from stockade_sandbox.policy import CopyRule, FolderRule, Network, Policy


def test_every_line_is_loud(tmp_path: Path) -> None:
    lines = UnconfinedSandbox(Policy(), (), tmp_path).guarantees
    assert lines[0].startswith("UNCONFINED: ")
    assert sum("not held" in line for line in lines) >= 5


@pytest.mark.root
@pytest.mark.parametrize("value", ["", "0", "yes"])
def test_root_is_refused_unless_it_says_so(value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(ALLOW_ROOT, value)
    with pytest.raises(PolicyNotEnforceable, match="root"):
        UnconfinedSandbox.prepared(Policy(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "policy",
    [
        Policy(rootfs="/"),
        Policy(copies=(CopyRule(host="/etc/hostname", inside="/in"),)),
        Policy(folders=(FolderRule(host="/a"), FolderRule(host="/b", inside="/b"))),
    ],
)
def test_what_has_no_place_on_the_host_is_refused(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_ROOT, "1")
    with pytest.raises(UsageError):
        refuse(policy)


@pytest.mark.parametrize("mode", ["allow", "open"])
def test_a_network_that_cannot_be_limited_is_refused(
    mode: Literal["allow", "open"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOW_ROOT, "1")
    with pytest.raises(PolicyNotEnforceable) as caught:
        refuse(Policy(network=Network(mode=mode)))
    assert caught.value.rule == "network"


def test_ending_a_tree_ends_all_of_it() -> None:
    script = "import subprocess as s, sys; p = s.Popen(['setsid', 'sleep', '4567']); print(p.pid, flush=True); p.wait()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        inner = os.pidfd_open(int(process.stdout.readline()))
        end_tree(process.pid)
    subprocess.run([sys.executable, "-c", f"import select; assert select.select([{inner}], [], [], 10)[0]"],
                   pass_fds=[inner], check=True)  # fmt: skip
    os.close(inner)
