"""What is allowed without a question, line by line: the table, files of one's own, and what only Bash can tell."""

import random
import tomllib

import pytest

from stockade.approval.line import NotPlainError, leaves_names, read
from stockade.approval.rules import RuleSet, built_in, with_own
from stockade.core.errors import UsageError
from tests.support.hostile_lines import HOSTILE


def verdict(rules: RuleSet, line: str) -> str:
    try:
        said = {rules.judge(one).decision for one in read(line)}
    except NotPlainError:
        return "ask"
    return next((one for one in ("refuse", "ask") if one in said), "allow")


@pytest.mark.parametrize(
    "line",
    ["", "# only words", "ls -la", "ls\ncat x\n", "ls 2>/dev/null", "ls >/dev/null 2>&1", "ls &> /dev/null",
     'cat "a b" | wc -l && echo x || true; pwd', "cat ~/x", "cat 'it is' so\\ there", "grep -rn 'a\\|b' . 2>/dev/null",
     'grep "end$" x', 'grep "a\\|b" x', "ls *.py src/*.py [ab]c", 'echo $NAME "$NAME" "exit: $?" src/$NAME',
     "head -5 x", "uniq -cf 1 x",
     'sort "src/$NAME" ./*.txt', 'sort -- "$NAME"', "sort -t: -k 2 -rn x", "sed -n 1,5p x", "sed -n '/def main/,$p' x",
     "find . -maxdepth 2 \\( -name '*.py' -o -type d \\) ! -path './.git/*' -print", "uniq -c x", "xxd -l 16 x",
     "date +%F", 'printf "%s %5.2f\\n" "$NAME" 1', "command -v cc", "test -f x && echo yes", "python3 --version",
     "tree -L 2", "diff -u a b", "cd src && ls", "jq '.a | .b' x.json", "echo größe 中文 😀", "rg -n --glob=*.py foo"],
)  # fmt: skip
def test_reading_is_allowed(line: str) -> None:
    assert verdict(built_in(), line) == "allow"


@pytest.mark.parametrize("line", HOSTILE)
def test_what_runs_or_writes_is_not(line: str) -> None:
    assert verdict(built_in(), line) == "ask"


def test_there_are_as_many_hostile_lines_as_were_tried_before() -> None:
    assert len(set(HOSTILE)) == len(HOSTILE) >= 103


def test_the_table_says_of_each_command_why() -> None:
    names = [name for one in built_in().command for name in one.name.split() if one.why]
    assert len(names) == len(set(names)) >= 60
    assert all(one.why for one in built_in().command)


OWN = """
[[command]]
name = "pytest git+log"
options = "-q -x -k="

[[deny]]
name = "rm"
options = "-r --recursive"
reason = "it deletes a whole tree"
instead = "delete the files by their names"

[[deny]]
name = "@write_file cat"
operand = '.*\\.lock'
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pytest -q -k 'a or b' tests", "allow"),
        ("pytest -p x", "ask"),
        ("git log -q", "allow"),
        ("git push", "ask"),
        ("ls; pytest -x", "allow"),
        ("rm x", "ask"),
        ("ls; rm -fr x", "refuse"),
        ("rm --recurs x", "refuse"),
        ("rm $X", "ask"),
        ("sh -c 'rm -r x'", "ask"),
        ("cat a.lock", "refuse"),
        ("cat a", "allow"),
        ('cat "$A"', "ask"),
    ],
)
def test_a_file_of_ones_own(line: str, expected: str) -> None:
    assert verdict(with_own(tomllib.loads(OWN), "own.toml"), line) == expected


@pytest.mark.parametrize(
    "text",
    ["[[rule]]\nx = 1", "command = 1", "[[command]]", '[[command]]\nname = ""',
     '[[command]]\nname = "x"\noptions = "f"',
     '[[command]]\nname = "x"\nfirst = "("', '[[command]]\nname = "x"\noperands = -1', '[[deny]]\nname = ["x"]',
     '[[command]]\nname = "x"\nprogramm = "y"'],
)  # fmt: skip
def test_a_file_with_a_mistake_is_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"own\.toml: ") as caught:
        with_own(tomllib.loads(text), "own.toml")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "line",
    ["make > log 2>&1", "for f in *; do cat $f; done", "python - <<'E'\nx\nE", "X=1 pytest", "echo $(date) ${HOME}",
     "x=5", "if [ -f x ]; then make; fi", "echo a | xargs rm {}", "{ make; } | tail", "(cd a && make)",
     "cat > x <<E\na $x\nE"],
)  # fmt: skip
def test_lines_that_leave_the_names(line: str) -> None:
    assert leaves_names(line)


@pytest.mark.parametrize(
    "line",
    ["PATH=x", "export A=1", "ls() { :; }", "function ls { :; }", "source x", ". x", "\\. x", "'eval' x",
     "IFS=, read a",
     "for PATH in x; do :; done", "[[ -v x ]]", "[ -v x ]", "((PATH=1))", "echo ${PATH:=x}", "alias ls=x", "$X",
     "coproc x",
     "exec {PATH}>x", "ls {PATH}>x", "echo $((PATH=1))", "cat x; { PATH=a; }", "PATH+=:.", "a[x]=1", "enable -f x ls",
     "hash -p x ls", "trap x DEBUG", "declare -n a=b", "printf -v PATH x", "echo 'x", "x" * 200_000],
)  # fmt: skip
def test_lines_that_may_change_the_names(line: str) -> None:
    assert not leaves_names(line)


def test_hostile_lines_end_and_never_end_the_process() -> None:
    """The scanner of tree-sitter-bash 0.25.1 reads outside of a table beyond ASCII: on 90cacfa this crashed."""
    chance = random.Random(18)
    texts = [
        "".join(chr(chance.choice((chance.randrange(128), chance.randrange(0x110000)))) for _ in range(200))
        for _ in range(1000)
    ]
    for line in ("$(" * 5000 + ")" * 5000, "ls " + "a && ls " * 9000, '"' + "a" * 90_000, "x" * 2_000_000, *texts):
        assert verdict(RuleSet(), line) == "ask" or not line.strip()
