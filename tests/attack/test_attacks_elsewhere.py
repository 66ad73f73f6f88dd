"""The same attempts against the other backends: those that may share a sandbox in one, once; the rest in their own.

What runs here is bounded by CI's time: what is left for the host is judged by one review whatever the backend, and only
gVisor writes the folder by another way; Podman holds resources by the mechanisms that Docker does. The page is made of
all of them.
"""

from pathlib import Path

import anyio
import pytest

from tests.attack.attempts import AREAS
from tests.attack.attempts.attempt import Attempt
from tests.attack.known import KNOWN
from tests.attack.runner import attacked, backend, expected
from tests.attack.scene import Scene
from tests.attack.together import ALONE, SHARING, told_once
from tests.support.engines import engine_environment

OTHERS = ("docker", "podman", "gvisor")
IN_THEIR_OWN = [
    *(("docker", attempt) for attempt in AREAS["resources"]),
    *(("gvisor", attempt) for attempt in ALONE),
]
Outcomes = dict[str, dict[str, str]]


def use_engine(name: str, environment: pytest.MonkeyPatch) -> None:
    for variable, value in engine_environment(name).items() if name in ("docker", "podman") else ():
        environment.setenv(variable, value)


@pytest.fixture(scope="module")
def outcomes(laid_out: Scene) -> Outcomes:
    """Of each backend, filled as they are asked for."""
    return {}


@pytest.fixture
def of_backend(
    request: pytest.FixtureRequest, outcomes: Outcomes, stage: Scene, tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, str]:  # fmt: skip
    """One sandbox, all attempts."""
    name: str = request.param
    if name not in outcomes:
        outcomes[name] = {}  # a backend that cannot start fails every test, without trying each time
        use_engine(name, monkeypatch)
        outcomes[name] = told_once(tmp_path_factory, name, stage, backend(name))
    return outcomes[name]


@pytest.mark.parametrize("of_backend", OTHERS, indirect=True)
@pytest.mark.parametrize("attempt", SHARING, ids=lambda attempt: attempt.name)
def test_it_is_held_elsewhere(attempt: Attempt, of_backend: dict[str, str], request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["of_backend"]
    assert of_backend[attempt.name] in expected(attempt, name)


@pytest.mark.parametrize(("name", "attempt"), IN_THEIR_OWN, ids=[f"{name}-{one.name}" for name, one in IN_THEIR_OWN])
def test_it_is_held_in_a_sandbox_of_its_own(
    name: str, attempt: Attempt, stage: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_engine(name, monkeypatch)
    outcome = anyio.run(attacked, attempt, stage, tmp_path / "layers", backend(name))
    assert outcome in expected(attempt, name)


def test_what_is_known_is_about_attempts_that_there_are() -> None:
    names = {attempt.name for area in AREAS.values() for attempt in area}
    assert {one.attempt for one in KNOWN} <= names
    assert {one.backend for one in KNOWN} <= set(OTHERS)
    assert all(one.reason for one in KNOWN)


def test_nothing_but_the_open_shell_gets_through_gvisor() -> None:
    through = [one for one in KNOWN if one.backend == "gvisor" and one.how == "through"]
    assert [one.attempt for one in through if " of the shell" not in one.attempt] == []
