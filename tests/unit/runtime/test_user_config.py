"""One setting is written into a configuration; all else of it stays."""

import os
import tomllib
from pathlib import Path

import pytest

from stockade.core.errors import UsageError
from stockade.runtime.user_config import write_setting

MINE = """\
# mine
max_turns = 7   # few

[[hooks]]
name = "guard"
on = "before_action"
command = ["true"]
"""


def test_what_was_there_stays_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(MINE)
    path.chmod(0o600)
    write_setting("model", 'a/"b"\\c', path)
    write_setting("model", "ollama/x:1", path)
    write_setting("fallback", ("a/b", "c/d"), path)
    text = path.read_text()
    assert text.startswith("# mine\nmax_turns = 7   # few\n")
    assert text.endswith(MINE[MINE.index("[[hooks]]") :])
    assert {"model": "ollama/x:1", "fallback": ["a/b", "c/d"], "max_turns": 7}.items() <= tomllib.loads(text).items()
    assert path.stat().st_mode & 0o777 == 0o600
    write_setting("model", None, path)
    write_setting("fallback", None, path)
    assert tomllib.loads(path.read_text()) == tomllib.loads(MINE)


def test_a_new_one_is_made_and_a_link_stays_a_link(tmp_path: Path) -> None:
    write_setting("model", "a/b", tmp_path / "new" / "config.toml")
    assert tomllib.loads((tmp_path / "new" / "config.toml").read_text()) == {"model": "a/b"}
    link = tmp_path / "config.toml"
    link.symlink_to("new/config.toml")
    write_setting("model", "c/d", link)
    assert link.is_symlink()
    assert tomllib.loads((tmp_path / "new" / "config.toml").read_text()) == {"model": "c/d"}


def test_what_is_no_toml_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("model = ")
    with pytest.raises(UsageError, match="is not TOML"):
        write_setting("model", "a/b", path)
    assert path.read_text() == "model = "
    assert os.listdir(tmp_path) == ["config.toml"]
