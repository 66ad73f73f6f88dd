"""`runs export --format junit`: what a CI server reads of a run."""

from collections import Counter
from xml.etree import ElementTree

import pytest

from stockade.testing import say
from tests.cli.conftest import Stage

ODD = r"printf '\033[31mred\001\377 <b>&]]> \342\200\256\n'; exit 3"
GO = [say("shell", command="echo 1 > made"), *[say("finish", answer="done <&>")] * 9]


def exported(stage: Stage) -> ElementTree.Element:
    told = stage.call("runs", "export", "--format", "junit")
    assert told.status == 0, told.err
    (suite,) = ElementTree.fromstring(told.out)
    return suite


def kinds(suite: ElementTree.Element) -> list[tuple[str, str]]:
    """Each case, and how it ended; the counts of the suite agree."""
    found = [(str(case.get("name")), next((one.tag for one in case if one.tag != "system-out"), "passed"))
             for case in suite.iter("testcase")]  # fmt: skip
    counts = Counter(kind for _, kind in found)
    told = {
        kind: int(suite.attrib[f"{kind}s" if kind != "skipped" else kind]) for kind in ("failure", "error", "skipped")
    }
    assert told == {kind: counts[kind] for kind in told}
    assert int(suite.attrib["tests"]) == len(found)
    return found


def test_a_run_and_its_checks_are_test_cases(stage: Stage) -> None:
    assert stage.run(*GO, flags=("--check", "test -f made", "--check", "echo fine", "--discard")).status == 0
    suite = exported(stage)
    assert kinds(suite) == [("the run comes to its end", "passed"), ("test -f made", "passed"), ("echo fine", "passed")]
    assert [one.text for one in suite.iter("system-out")][0::2] == ["done <&>", "fine\n[exit status 0]"]
    assert {one.get("name"): one.get("value") for one in suite.iter("property")}["task"] == "count"


def test_what_fails_is_a_failure_whatever_it_prints(stage: Stage) -> None:
    ended = stage.run(*GO, flags=("--check", ODD, "--check", "echo fine", "--max-turns", "4", "--discard"))
    assert ended.status != 0
    suite = exported(stage)
    assert dict(kinds(suite))[ODD] == "failure"
    failure = suite.find(".//testcase[@classname='stockade.check']/failure")
    assert failure is not None
    assert failure.get("message") == "it does not pass (exit status 3)"
    assert "<b>&]]>" in "".join(one.text or "" for one in suite.iter("system-out"))


def test_a_check_that_was_not_come_to_is_skipped(stage: Stage) -> None:
    endless = [say("shell", command=f"echo {number}") for number in range(5)]
    assert stage.run(*endless, flags=("--check", "true", "--max-turns", "2", "--no-input")).status == 3
    assert kinds(exported(stage)) == [("the run comes to its end", "failure"), ("true", "skipped")]


@pytest.mark.parametrize("checks", [(), ("--check", "true")])
def test_a_model_that_fails_is_an_error(stage: Stage, checks: tuple[str, ...]) -> None:
    assert stage.run(say("shell", command="ls"), flags=checks).status == 5
    assert kinds(exported(stage))[0] == ("the run comes to its end", "error")
