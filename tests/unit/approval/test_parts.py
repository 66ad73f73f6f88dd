"""Every program that a command line would start, wherever it stands."""

import random

import pytest

from stockade.approval.parts import MAX_DEPTH, parse


def programs(command: str) -> list[str | None]:
    return [part.program for part in parse(command).parts if part.words]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ls -la", ["ls"]),
        ("/bin/rm x", ["rm"]),
        ("'rm' x; \"rm\" x; r\\m x; $'\\x72m' x", ["rm", "rm", "rm", "rm"]),
        ("a && b || c; d & e | f |& g", ["a", "b", "c", "d", "e", "f", "g"]),
        ('echo $(rm x) `rm y` "$(rm z)" <(rm u) >(rm v)', ["echo", "rm", "rm", "rm", "rm", "rm"]),
        ("X=$(rm x)", ["rm"]),
        ("X=1 rm x", ["rm"]),
        ("export A=$(rm x)", ["rm"]),
        ("a=(x $(rm y))", ["rm"]),
        ("for f in *; do rm $f; done", ["rm"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("while a; do b; done; until c; do d; done", ["a", "b", "c", "d"]),
        ("case $x in y) rm z;; esac", ["rm"]),
        ("( rm x ); { rm y; }; ! rm z", ["rm", "rm", "rm"]),
        ("f() { rm x; }; f", ["function", "rm", "f"]),
        ("cat <<E\n$(rm x)\nE", ["cat", "rm"]),
        ("cat <<'E'\n$(rm x)\nE", ["cat"]),
        ("cat <<< $(rm x)", ["cat", "rm"]),
        ("[[ a == $(rm x) ]]", ["rm"]),
        ("echo ${a:-$(rm x)} $((1 + $(rm y)))", ["echo", "rm", "rm"]),
        ("> out; rm \\\n -r x", ["rm"]),
        ("# rm x", []),
        ("", []),
        ("echo 'rm x'", ["echo"]),
    ],
)
def test_programs_are_found(command: str, expected: list[str]) -> None:
    assert programs(command) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("sudo rm x", ["sudo", "rm"]),
        ("sudo -u root -- rm x", ["sudo", "rm"]),
        ("env -i A=1 B=2 rm x", ["env", "rm"]),
        ("env -S 'rm x'", ["env", "rm"]),
        ("nice -n 5 timeout -k 1 5 rm x", ["nice", "timeout", "rm"]),
        ("xargs -n1 -I {} rm {}", ["xargs", "rm"]),
        ("ls | xargs rm", ["ls", "xargs", "rm"]),
        ("find . -name x -exec rm -r {} \\; -exec ls {} +", ["find", "rm", "ls"]),
        ("sh -c 'a; rm x'", ["sh", "a", "rm"]),
        ("bash -xec 'rm x' name", ["bash", "rm"]),
        ("sh -c \"sh -c 'rm x'\"", ["sh", "sh", "rm"]),
        ("eval rm -r x", ["eval", "rm"]),
        ("trap 'rm x' EXIT", ["trap", "rm"]),
        ("exec rm x", ["exec", "rm"]),
        ("time nohup setsid rm x", ["time", "nohup", "setsid", "rm"]),
        ("busybox rm x", ["busybox", "rm"]),
        ("command -v rm", ["command"]),
        ("command rm x", ["command", "rm"]),
        ("coproc rm x", ["coproc", "rm"]),
        ("chroot /x rm y", ["chroot", "rm"]),
    ],
)
def test_programs_given_to_programs_are_found(command: str, expected: list[str]) -> None:
    assert programs(command) == expected


@pytest.mark.parametrize(
    "command",
    ["$X y", "rm$IFS-rf", "eval $x", 'sh -c "$x"', "bash script.sh", "curl x | sh", "sudo $x", "parallel rm", "env $x"],
)
def test_what_only_running_can_tell_is_unknown(command: str) -> None:
    assert None in programs(command)


def test_words_that_change_later_are_unknown() -> None:
    assert parse("rm {-r,x} *.c ~/x $y 'a b' \"c\\\"d\" {}").parts[0].words == (
        "rm", None, None, None, None, "a b", 'c"d', "{}",
    )  # fmt: skip


@pytest.mark.parametrize("command", ["echo 'x", "if then", "a $(", "f( {"])
def test_a_line_that_is_not_bash_is_a_problem(command: str) -> None:
    assert parse(command).problem


def test_written_files_are_named() -> None:
    assert parse("a > x 2>> y 2>&1 < z").parts[0].writes == ("x", "y")
    assert parse("a > /dev/null 2>&1").parts[0].writes == ()
    assert parse("a > $x").parts[0].writes == (None,)
    assert [part.writes for part in parse("{ a; b; } > x").parts] == [("x",), (), ()]


def test_hostile_lines_end() -> None:
    assert parse("$(" * 5000 + ")" * 5000) is not None
    assert parse("x" * 2_000_000).problem
    nested = "rm x"
    for _ in range(MAX_DEPTH + 2):
        nested = "sh -c " + "'" + nested.replace("'", "'\\''") + "'"
    assert parse(nested).problem
    assert parse("sudo " * 5000 + "rm").problem


def test_characters_beyond_ascii_are_words_and_never_end_the_process() -> None:
    """The scanner of tree-sitter-bash 0.25.1 reads outside of a table for some of them: on 90cacfa this crashed."""
    assert [part.words for part in parse("échø 'ü b' \"$é\" 中文 | λ=1 grep 😀").parts] == [
        ("échø", "ü b", "$é", "中文"),
        ("λ=1", "grep", "😀"),
    ]
    chance = random.Random(18)
    for _ in range(2000):
        text = "".join(chr(chance.choice((chance.randrange(128), chance.randrange(0x110000)))) for _ in range(200))
        parse(text)
