"""Some of what was applied is taken back."""

from tests.cli.conftest import Ended, Stage
from tests.cli.test_keeping import made, repository

__all__ = ["repository"]


def test_some_of_it_is_undone_then_the_rest_then_it_comes_again(repository: Stage) -> None:
    demo = repository.demo
    before = sorted(path.name for path in demo.iterdir())
    made(repository, "echo A > a; mv data.csv moved; mkdir d; echo 1 > d/one", task="some")

    def call(*words: str) -> Ended:
        return repository.call(*words, folder=demo)

    assert call("apply", "last").status == 0
    wrong = call("undo", "--only", "nothing")
    assert (wrong.status, "nothing is applied at nothing" in wrong.err) == (2, True)
    assert "undone 1 file" in call("undo", "--only", "moved").err  # without RUN it is still the newest one
    assert {"data.csv", "a", "d"} <= {path.name for path in demo.iterdir()}
    assert (demo / "d" / "one").exists()
    assert call("undo").status == 0
    assert sorted(path.name for path in demo.iterdir()) == before
    assert call("undo").status == 2
    assert call("apply").status == 0
    assert {"moved", "a", "d"} <= {path.name for path in demo.iterdir()}
