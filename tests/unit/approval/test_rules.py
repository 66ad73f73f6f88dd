"""Rules on parts, and the two sets that come with Stockade."""

import tomllib

import pytest
from pydantic import ValidationError

from stockade.approval.parts import parse
from stockade.approval.rules import RuleSet, rule_set, strictest
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


def test_rules_of_ones_own() -> None:
    text = 'default = "allow"\n[[rule]]\nwrites = ["*.lock"]\ndecision = "refuse"\nreason = "it is made"\n'
    rules = RuleSet.model_validate(tomllib.loads(text))
    assert verdict(rules, "echo > uv.lock") == "refuse"
    assert verdict(rules, "echo > $x") == "ask"
    assert verdict(rules, "echo > x") == "allow"


@pytest.mark.parametrize(
    ("text", "key"),
    [('[[rule]]\ndecision = "maybe"', "decision"), ('[[rule]]\nprogramm = ["x"]\ndecision = "ask"', "programm")],
)
def test_a_rule_with_a_mistake_is_none(text: str, key: str) -> None:
    with pytest.raises(ValidationError, match=f"rule.0.{key}"):
        RuleSet.model_validate(tomllib.loads(text))


def test_a_set_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="careful"):
        rule_set("none")
