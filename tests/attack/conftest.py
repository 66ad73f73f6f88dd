"""The scene of the attacks, laid out once a module, and as it was at the start of each test."""

from collections.abc import Iterator

import pytest

from stockade_sandbox.launcher.launch import launcher_bytes
from tests.attack.scene import Scene, scene


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    probe = tmp_path_factory.mktemp("probe") / "probe"
    probe.write_bytes(launcher_bytes())
    probe.chmod(0o755)
    with scene(str(probe)) as found:
        yield found
        found.reset()


@pytest.fixture
def stage(laid_out: Scene, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    laid_out.reset()
    for name, value in laid_out.loose.items():
        monkeypatch.setenv(name, value)
    yield laid_out
    laid_out.reset()
