"""Every attempt gets through without a sandbox, and none in the default one. test_attacks_elsewhere.py has the others.

A check that cannot fail is worth nothing: the control runs the same script as root on the bare host. Nothing is skipped
when a sandbox is missing.
"""

import os
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from stockade_sandbox.backends.seccomp import ARCHITECTURES
from stockade_sandbox.doctor.escapes import escapes
from stockade_sandbox.policy import Policy
from tests.attack.attempts import AREAS
from tests.attack.attempts.attempt import Attempt
from tests.attack.page import PAGE, cell
from tests.attack.runner import HELD, THROUGH, attacked, backend, control, expected
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


AREAS_OF_ROOT = ("processes", "kernel", "environment", "network")
OF_ROOT = {
    "becoming root", "becoming another group", "other groups", "who the person is", "what the account may do besides",
    "capabilities in the bounding set", "effective capabilities",
}  # fmt: skip
"""What root of a sandbox is by its nature; its rights are those of argv.RIGHTS_OF_ROOT."""


@pytest.mark.parametrize(
    "attempt", [one for area in AREAS_OF_ROOT for one in AREAS[area]], ids=lambda attempt: attempt.name
)
@pytest.mark.root
def test_root_of_a_sandbox_is_held_too(attempt: Attempt, stage: Scene, tmp_path: Path) -> None:
    rooted = replace(BUBBLEWRAP, root=True)
    outcome = anyio.run(attacked, attempt, stage, tmp_path / "layers", rooted)
    assert outcome == (THROUGH if attempt.name in OF_ROOT else HELD)


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
