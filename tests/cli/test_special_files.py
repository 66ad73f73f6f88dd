"""A pipe without a writer and a device that never ends, named where a file is read: refused at once, in a sentence."""

import os
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import DONE, Stage


@pytest.fixture(params=["fifo", "device"])
def special(request: pytest.FixtureRequest, stage: Stage) -> Path:
    """A name for each kind that every reader takes: a symbolic link to the device."""
    path = stage.tmp_path / "special.toml"
    if request.param == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "x", "--bot", "{special}"),
        ("run", "x", "--model", "scripted/{special}"),
        ("run", "@{special}"),
        ("run", "x", "--tool", "{special}"),
        ("run", "x", "--mcp", "{special}"),
        ("run", "x", "--model", "gguf/{special}"),
        ("run", "x", "--store", "{special}"),
        ("code", "x", "--tests", "{special}"),
        ("trust", "{special}"),
        ("tool", "inspect", "{special}"),
        ("runs", "list", "--store", "{special}"),
        ("runs", "show", "--store", "{special}"),
    ],
)
def test_it_is_refused_at_once(stage: Stage, special: Path, arguments: tuple[str, ...]) -> None:
    given = [argument.format(special=special) for argument in arguments]
    model = [] if arguments[0] not in ("run", "code") or "--model" in arguments else ["--model", stage.script(DONE)]
    ended = stage.call(*given, *model)
    assert ended.status in (2, 4, 5), ended.err
    assert str(special) in ended.err
    assert "this is a bug" not in ended.err
    assert ended.out == ""
    assert stage.left_behind() == []


@pytest.mark.parametrize("name", ["config.toml", "prices.toml"])
def test_the_users_own_files_too(stage: Stage, name: str) -> None:
    path = stage.home / ".config" / "stockade" / name
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    ended = stage.run(say("finish", answer="x"))
    if name == "config.toml":
        assert (ended.status, ended.err) == (2, f"stockade: {path} cannot be read: it is no regular file\n")
    else:
        assert ended.status == 0, ended.err  # a scripted model has no price that is looked up
