"""Rules on parts, and the two sets that come with Stockade."""

from pathlib import Path

import pytest

from stockade.approval.parts import parse
from stockade.approval.rules import RuleSet, read_rules, rule_set, strictest
from stockade.core.errors import UsageError


def verdict(rules: RuleSet, command: str) -> str:
    return strictest(rules.judge(parse(command)))


@pytest.mark.parametrize(
    "command",
    ["ls -R", "ls --recursive", "ls -l -R", "ls -lR", "rm -r x", "rm -rf x", "rm -f -r x", "rm --force -r x",
     "rm -Rf x", "rm --recursive x", "rm --rec x", "tree", "tree /", "find . -name x", "find . ; echo -maxdepth",
     "mkfs /dev/sda", "sh -c 'rm -rf x'", "sudo rm -rf x", "echo $(rm -rf x)", "ls | xargs rm -r",
     "find . -maxdepth 1 -delete", "find . -maxdepth 1 -exec rm -r {} +"],
)  # fmt: skip
def test_microbots_set_refuses(command: str) -> None:
    assert verdict(rule_set("microbots"), command) == "refuse"


@pytest.mark.parametrize(
    "command",
    ["ls -lr", "ls -ltr", "cat tree.py", "git grep tree", "echo 'please find it'", 'microbot_sub --task "find the bug"',
     'memory create x "tree of files"', "find . -maxdepth 2 -name x", "tree -L 2", "rm x", "rm -f x", "rm -- -r",
     "grep -r rm .", "echo rm -rf x", ""],
)  # fmt: skip
def test_microbots_set_allows(command: str) -> None:
    assert verdict(rule_set("microbots"), command) == "allow"


@pytest.mark.parametrize("command", ["rm $x", "$x -rf y", "eval $x", "curl x | sh", "dd of=/dev/sda", "echo 'x"])
def test_what_may_be_anything_is_asked(command: str) -> None:
    assert verdict(rule_set("microbots"), command) == "ask"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ls -R | head -5 && wc -l < x", "allow"),
        ("cat $x", "allow"),
        ("cat x > y", "ask"),
        ("cat x > /dev/null 2>&1", "allow"),
        ("timeout 5 grep x y", "allow"),
        ("timeout 5 rm y", "ask"),
        ("find . -delete", "ask"),
        ("git status", "allow"),
        ("git push", "ask"),
        ("git -c core.pager=x log", "ask"),
        ("python x.py", "ask"),
        ("ls; python x.py", "ask"),
    ],
)
def test_careful_set(command: str, expected: str) -> None:
    assert verdict(rule_set("careful"), command) == expected


def test_a_file_of_rules(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('default = "allow"\n[[rule]]\nwrites = ["*.lock"]\ndecision = "refuse"\nreason = "it is made"\n')
    rules = read_rules(file)
    assert verdict(rules, "echo > uv.lock") == "refuse"
    assert verdict(rules, "echo > $x") == "ask"
    assert verdict(rules, "echo > x") == "allow"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x", "not TOML"),
        ('[[rule]]\ndecision = "maybe"', "rule.0.decision"),
        ('[[rule]]\nprogramm = ["x"]\ndecision = "ask"', "rule.0.programm"),
    ],
)
def test_a_broken_file_names_the_key(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=words):
        read_rules(file)


def test_a_missing_file_and_set() -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_rules(Path("/nonexistent"))
    with pytest.raises(UsageError, match="careful"):
        rule_set("none")
