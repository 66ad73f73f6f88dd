"""Every attempt gets through without a sandbox, and none in the default one. test_attacks_elsewhere.py has the others.

A check that cannot fail is worth nothing: the control runs the same script as root on the bare host. Nothing is skipped
when a sandbox is missing.
"""

import os
from pathlib import Path

import anyio
import pytest

from stockade_sandbox.backends.seccomp import ARCHITECTURES
from stockade_sandbox.doctor.escapes import escapes
from stockade_sandbox.policy import Policy
from tests.attack.attempts import AREAS
from tests.attack.attempts.attempt import Attempt
from tests.attack.page import PAGE, cell
from tests.attack.runner import attacked, backend, control, expected
from tests.attack.scene import Scene

DOCTOR = tuple(Attempt(f"doctor: {one.name}", one.script) for one in escapes(ARCHITECTURES[os.uname().machine]))
BUBBLEWRAP = backend("bubblewrap")
EVERY = (*(attempt for area in AREAS.values() for attempt in area), *DOCTOR)


@pytest.mark.parametrize("attempt", EVERY, ids=lambda attempt: attempt.name)
@pytest.mark.root
def test_without_a_sandbox_it_gets_through(attempt: Attempt, stage: Scene) -> None:
    assert control(attempt, stage)


@pytest.mark.parametrize("attempt", EVERY, ids=lambda attempt: attempt.name)
def test_a_sandbox_holds_it(attempt: Attempt, stage: Scene, tmp_path: Path) -> None:
    outcome = anyio.run(attacked, attempt, stage, tmp_path / "layers", BUBBLEWRAP)
    assert outcome in expected(attempt, BUBBLEWRAP.name)


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    names = [attempt.name for attempt in EVERY]
    assert len(set(names)) == len(names)
    assert len(names) - len(DOCTOR) >= 150


TOOLS = (
    "python3",
    "git",
    "make",
    "unshare",
    "nsenter",
    "mount",
    "mknod",
    "chattr",
    "chrt",
    "nice",
    "chroot",
    "hostname",
)


def test_what_the_attempts_use_is_inside(tmp_path: Path) -> None:
    """An attempt that only lacks its tool would be held by nothing."""

    async def missing() -> bytes:
        async with BUBBLEWRAP.make(Policy(), tmp_path) as box:
            return (await box.run(f"for t in {' '.join(TOOLS)}; do command -v $t >/dev/null || echo $t; done")).stdout

    assert anyio.run(missing) == b""


def test_the_page_names_every_attempt() -> None:
    """`make attack-page` writes it from a real run; what was added since is missing in it."""
    page = PAGE.read_text()
    missing = [attempt.name for area in AREAS.values() for attempt in area if f"| {cell(attempt.name)} |" not in page]
    assert missing == []
    assert "not proved" not in page
