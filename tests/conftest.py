"""Every test: anyio on asyncio, and a home of its own, so that nothing of the person's is read or written."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support import postgres as support
from tests.support.scale import scaled
from tests.tiers import tiers

# A shell's background job ignores Ctrl-C, and so would every command that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Where Python is told to keep no bytecode, each of the thousands of commands compiles all its modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

PROVIDERS = (
    "STOCKADE_",
    "OPENAI_",
    "LLAMA_",
    "LLAMAFILE_",
    "OLLAMA_",
    "HF_",
    "ANTHROPIC_",
    "AZURE_",
    "VLLM_",
    "LM_STUDIO_",
)


_CLOCK = (hypothesis.HealthCheck.too_slow,)  # it goes by the clock, as deadlines do, and machines are busy
hypothesis.settings.register_profile("scaled", max_examples=scaled(100), deadline=None, suppress_health_check=_CLOCK)
hypothesis.settings.load_profile("scaled")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for name in tiers(item):
            item.add_marker(name)
    if os.geteuid() != 0:
        roots = [item for item in items if item.get_closest_marker("root")]
        config.hook.pytest_deselected(items=roots)
        items[:] = [item for item in items if item not in roots]


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes that are no text are named by their number: those of gzip and zip are others each second."""
    if isinstance(val, bytes) and not (val.isascii() and val.decode().isprintable()):
        return f"{len(val)} bytes"
    return None


_started: list[str] = []
_ENGINES = {"launch", "bwrap", "unshare", "docker", "podman", "runsc"}


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "subprocess.Popen" and isinstance(arguments[1], list | tuple) and arguments[1]:
        _started.append(Path(str(arguments[1][0])).name)


sys.addaudithook(_note)


@pytest.fixture(autouse=True)
def _a_fast_test_starts_no_sandbox(request: pytest.FixtureRequest) -> Iterator[None]:
    _started.clear()
    yield
    if request.node.get_closest_marker("fast"):
        assert not _ENGINES.intersection(_started), "it is not fast: see tests/tiers.py"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path_factory.mktemp("home")
    for name in [name for name in os.environ if name.startswith((*PROVIDERS, "VIRTUAL_ENV"))]:
        monkeypatch.delenv(name)
    for name, folder in (
        ("CONFIG", ".config"),
        ("STATE", ".local/state"),
        ("DATA", ".local/share"),
        ("CACHE", ".cache"),
    ):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / folder))
    # No test finds, or leaves, a warm model server.
    (home / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "run"))
    monkeypatch.setenv("STOCKADE_KEEP_WARM_S", "0")
    monkeypatch.setenv("STOCKADE_NO_FOLDER", "true")  # not this repository, where a test names no folder
    return home


@pytest.fixture(scope="session")
def postgres() -> Iterator[support.Server]:
    """One server for all tests that ask for it; each takes a database of its own."""
    with support.server() as running:
        yield running
