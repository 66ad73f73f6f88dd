"""Bots of TOML files, and what a folder tells its bots."""

import os
from pathlib import Path

import pytest

from stockade.bots.file import read_bot
from stockade.bots.surroundings import MAX_AGENTS_CHARS, front_matter, guidance, guidance_files
from stockade.core.errors import UsageError
from stockade.runtime.bots import find_bot, with_defaults
from stockade.runtime.spec import RunSpec

WHOLE = """
name = "triage"
summary = "says where to look"
prompt = "You look around in {workdir}."
permission = "ro"
tools = ["shell", "memory", "finish"]
max_turns = 7
temperature = 0.5
net = "example.com"
env = ["A=1"]
"""


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "bot.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_whole_bot(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)
    bot = find_bot(str(path))
    assert (bot.name, bot.folder_mode, bot.tools, bot.file) == (
        "triage",
        "ro",
        ("shell", "memory", "finish"),
        str(path),
    )
    options = with_defaults(RunSpec(), bot)
    assert (options.max_turns, options.temperature, options.net, options.env) == (7, 0.5, "example.com", ("A=1",))


def test_what_the_person_sets_goes_before_the_file(tmp_path: Path) -> None:
    bot = read_bot(written(tmp_path, WHOLE))
    options = with_defaults(RunSpec(max_turns=3, net="none"), bot)
    assert (options.max_turns, options.net, options.temperature) == (3, "none", 0.5)


def test_two_lines_are_enough(tmp_path: Path) -> None:
    bot = read_bot(written(tmp_path, 'prompt = "You are a bot."'))
    assert (bot.name, bot.folder_mode) == ("bot", "overlay")
    assert bot.tools[-1] == "finish"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('promt = "x"', "did you mean prompt"),
        ('prompt = "x"\nmax_turn = 3', "did you mean max_turns"),
        ('prompt = "x"\npermission = "write"', "permission is one of"),
        ('prompt = "x"\npermission = 7', "permission is one of"),
        ('prompt = "x"\ntools = "shell"', "tools"),
        ('prompt = "x"\nname = 7', "name"),
        ('prompt = "  "', "has a prompt"),
        ("prompt = 7", "has a prompt"),
        ('summary = "x"', "has a prompt"),
        ('prompt_file = "nothing.md"', "no key 'prompt_file'"),
        ("prompt = ", "not TOML"),
        (b"prompt = '\xff'", "UTF-8"),
        (b"#" * 300_000, "larger"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        read_bot(written(tmp_path, text))
    assert "bot.toml" in str(raised.value)


def test_a_wrong_value_is_named_when_the_run_begins(tmp_path: Path) -> None:
    bot = read_bot(written(tmp_path, 'prompt = "x"\nmax_turns = "many"'))
    with pytest.raises(UsageError, match="max_turns"):
        with_defaults(RunSpec(), bot)


def test_no_such_bot() -> None:
    with pytest.raises(UsageError, match="did you mean writing"):
        find_bot("writting")
    with pytest.raises(UsageError, match="no such file"):
        find_bot("/no/such/bot.toml")


def test_the_folder_speaks_to_its_bots(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.\n")
    skill = tmp_path / ".agents" / "skills" / "release"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: release\ndescription: How a release\tis made\n---\nbody\n")
    (skill.parent / "no-head").mkdir()
    (skill.parent / "no-head" / "SKILL.md").write_text("body")
    text = guidance(tmp_path, "/workspace")
    assert "Use tabs." in text
    assert "- release: How a release is made" in text
    assert "/workspace/.agents/skills/NAME/SKILL.md" in text
    assert "no-head" not in text
    assert guidance_files(tmp_path) == "AGENTS.md and 1 skill"
    (tmp_path / "AGENTS.md").write_text(" \n")
    assert guidance_files(tmp_path) == "1 skill"


def test_what_a_folder_says_is_bounded_and_plain(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_bytes(b"\x1b[2Jred \xff" + b"x" * 1_000_000)
    text = guidance(tmp_path, "/workspace")
    assert len(text) < MAX_AGENTS_CHARS + 200
    assert "\x1b" not in text
    assert "more in /workspace/AGENTS.md" in text


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    folder = tmp_path / "f"
    (folder / ".agents" / "skills" / "a").mkdir(parents=True)
    (folder / "AGENTS.md").symlink_to(tmp_path / "secret")
    (folder / ".agents" / "skills" / "a" / "SKILL.md").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / ".agents" / "skills" / "pipe")
    assert guidance(folder, "/workspace") == ""
    (folder / "AGENTS.md").unlink()
    os.mkfifo(folder / "AGENTS.md")
    assert guidance(folder, "/workspace") == ""
    assert guidance(tmp_path / "nothing", "/workspace") == ""
    assert guidance_files(folder) == guidance_files(tmp_path / "nothing") == ""


def test_front_matter() -> None:
    assert front_matter('---\na: "x y"\nlist:\n  - b\nempty:\nc: d: e\n---\nrest') == {"a": "x y", "c": "d: e"}
    assert front_matter("a: b") is None
    assert front_matter("---\na: b\n") is None
    assert front_matter("") is None
