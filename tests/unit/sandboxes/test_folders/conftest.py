import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stockade_sandbox.overlay.discard import remove_tree
from tests.unit.sandboxes.test_folders.helpers import Bench

MakeBench = Callable[[str], Bench]


@pytest.fixture
def make_bench() -> Iterator[MakeBench]:
    """Benches in folders that an ordinary user can reach, which pytest's own are not."""
    tops: list[Path] = []

    def make(how: str) -> Bench:
        top = Path(tempfile.mkdtemp(prefix="stockade-test-"))
        top.chmod(0o755)
        tops.append(top)
        (top / "host").mkdir()
        return Bench(top, how)

    yield make
    for top in tops:
        remove_tree(top)


@pytest.fixture(params=["root", "user", "copy"])
def bench(request: pytest.FixtureRequest, make_bench: MakeBench) -> Bench:
    return make_bench(request.param)


@pytest.fixture
def upper_bench(make_bench: MakeBench) -> Bench:
    return make_bench("root")
