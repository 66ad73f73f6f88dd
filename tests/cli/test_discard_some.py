"""Some of what a run changed is thrown away, and the rest is decided on later."""

from tests.cli.conftest import Ended, Stage
from tests.cli.test_keeping import made, repository

__all__ = ["repository"]


def test_a_file_is_thrown_away_then_the_rest_is_applied(repository: Stage) -> None:
    demo = repository.demo
    made(repository, "echo A > a; mv data.csv moved; mkdir d; echo 1 > d/one; echo 2 > d/two", task="some")

    def call(*words: str) -> Ended:
        return repository.call(*words, folder=demo)

    wrong = call("discard", "--only", "nothing")
    assert (wrong.status, "nothing was changed at nothing" in wrong.err) == (2, True)
    thrown = call("discard", "--only", "moved", "--only", "d/one")
    assert thrown.status == 0
    assert "threw away 2 files that run" in thrown.err
    assert "moved" not in call("diff").out
    assert call("apply", "--only", "moved").status == 2
    assert call("apply").status == 0
    assert (demo / "data.csv").exists()
    assert (demo / "a").read_text() == "A\n"
    assert [path.name for path in (demo / "d").iterdir()] == ["two"]
    assert call("discard").status == 2
