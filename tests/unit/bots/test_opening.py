"""The system prompt: short, and what is in the folder."""

import os
from pathlib import Path

import pytest

from stockade.bots.opening import opening
from stockade.bots.spec import WRITING
from stockade.bots.surroundings import MAX_ENTRIES, MAX_NAMES, MAX_SHOWN, surroundings
from stockade_sandbox.policy import FolderRule, Policy
from tests.support.parts import BUILT_IN, PROTOCOLS, make_protocol

SHOWN = WRITING.model_copy(update={"shows_folder": True})


@pytest.mark.parametrize("bot", BUILT_IN)
@pytest.mark.parametrize("name", PROTOCOLS)
def test_an_opening_is_short_and_the_same_each_time(name: str, bot: str) -> None:
    text = opening(BUILT_IN[bot], make_protocol(name), Policy())
    assert text == opening(BUILT_IN[bot], make_protocol(name), Policy())
    assert len(text) < 1500
    assert ("/workspace" in text) == ("{workdir}" in BUILT_IN[bot].prompt)


def test_other_braces_of_a_prompt_stay_as_they_are() -> None:
    spec = SHOWN.model_copy(update={"prompt": 'In {workdir}: {nope}, {}, {{x}}, {"a": "{b}"}.'})
    text = opening(spec, make_protocol("json"), Policy())
    assert text.startswith('In /workspace: {nope}, {}, {{x}}, {"a": "{b}"}.')


def test_what_is_in_the_folder_is_told_with_first_lines(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sales.csv").write_text("date,amount\n2026-01-04,120\n2026-01-05,80\n2026-01-06,1\n")
    (tmp_path / "empty").touch()
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    text = opening(SHOWN, make_protocol("json"), Policy(folders=(FolderRule(host=str(tmp_path)),)), lines=True)
    told = text.partition("What is in /workspace now:\n")[2]
    assert told == (
        "data/\n"
        "data/sales.csv (54 bytes; in awk -F, $1 is date, $2 is amount)\n"
        "  | date,amount\n  | 2026-01-04,120\n  | 2026-01-05,80\n  | 2026-01-06,1\n"
        "empty (0 bytes)\n"
        "photo.png (10 bytes)"
    )


def test_a_folder_of_any_size_costs_the_same(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number:03}.txt").write_text("x" * 100_000)
    told = surroundings(tmp_path, lines=True)
    assert told.count("bytes)") == MAX_ENTRIES
    assert told.count("|") <= MAX_SHOWN
    assert told.endswith("... and more")
    assert len(told) < 2500


def test_a_model_that_is_not_small_and_here_gets_names_alone(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"{number:03}.csv").write_text("name,salary\nAnna,91\n")
    (tmp_path / "000").mkdir()
    text = opening(SHOWN, make_protocol("json"), Policy(folders=(FolderRule(host=str(tmp_path)),)))
    told = text.partition("What is in /workspace now:\n")[2]
    assert "salary" not in text
    assert told.splitlines() == ["000/", *(f"{number:03}.csv" for number in range(MAX_NAMES - 1)), "... and more"]


def test_hostile_entries_are_named_at_most(tmp_path: Path) -> None:
    outside = tmp_path / "secret"
    outside.write_text("the key\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    (folder / "bell").write_text("\x1b[31mred\n")
    (folder / "line\nbreak").touch()
    (folder / ("n" * 200)).touch()
    (folder / "no.txt").write_text("mine\n")
    (folder / "no.txt").chmod(0)
    told = surroundings(folder, lines=True)
    assert "the key" not in told
    assert "\x1b" not in told
    assert {"link (a link)", "loop (a link)", "pipe (no plain file)", "bell (9 bytes)"} <= set(told.splitlines())
    assert "break" not in told
    assert "nnn" not in told


def test_columns_are_told_of_tables_alone(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("first name\tage\nAnna\t3\n")
    (tmp_path / "b.csv").write_text("1,2\n3,4\n")
    (tmp_path / "c.txt").write_text("One, two and three; and then, so to say, four.\nFive, six.\n")
    (tmp_path / "d.csv").write_text("only,a,header\n")
    told = [line for line in surroundings(tmp_path, lines=True).splitlines() if "bytes" in line]
    assert told[0] == "a.tsv (22 bytes; in awk -F'\\t' $1 is first name, $2 is age)"
    assert not any("awk" in line for line in told[1:])


@pytest.mark.parametrize("name", [".env", "api_key.txt", "Passwords.csv", ".ssh/config", "server.pem", "app/.netrc"])
def test_what_may_be_secret_is_named_only(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("hunter2\n")
    told = surroundings(tmp_path, lines=True)
    assert f"{name} (8 bytes)" in told
    assert "hunter2" not in told


def test_no_folder_is_nothing_to_tell(tmp_path: Path) -> None:
    assert surroundings(tmp_path / "none", lines=True) == ""
    assert surroundings(tmp_path, lines=True) == ""
    (tmp_path / "file").touch()
    assert surroundings(tmp_path / "file", lines=True) == ""
