"""The runner, as it runs in the sandbox: by the interpreter, on a folder. What it says is what a verdict is made of."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stockade.plugins.coder.program import Example, example_lines
from stockade.plugins.coder.work import RUNNER, Job, Report, Verdict, judge, read_report, runner_folder

ADD = "def add(a, b):\n    return a + b\n"
ONE_AND_TWO = Example(call="add(1, 2)", expected="3")


class Ran:
    def __init__(self, folder: Path, code: str, job: Job) -> None:
        place = folder / "1"
        place.mkdir()
        (place / "main.py").write_text(code)
        (folder / "job.json").write_text(job.text())
        lines = ",".join(str(line) for line in example_lines(code)) if job.has_checks else ""
        command = [
            sys.executable,
            str(runner_folder() / RUNNER),
            "../job.json",
            "../1.json",
            *([lines] if lines else []),
        ]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=60)
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        report = read_report((folder / "1.json").read_text())
        assert report is not None
        self.report: Report = report
        self.verdict: Verdict = judge(code, job, report, done.stderr)


def checked(folder: Path, code: str, *examples: Example, tests: str = "", limit_s: float = 10.0) -> Ran:
    return Ran(folder, code, Job(examples=examples, tests=tests, limit_s=limit_s))


def test_an_example_that_holds(tmp_path: Path) -> None:
    ran = checked(tmp_path, ADD, ONE_AND_TWO)
    assert ran.verdict == Verdict(passed=True, checks_passed=1, checks=1)
    assert (ran.status, ran.err) == (0, "")


def test_an_example_that_does_not(tmp_path: Path) -> None:
    ran = checked(tmp_path, ADD.replace("+", "-"), ONE_AND_TWO)
    assert ran.verdict.words == "1 of 1 checks failed.\nadd(1, 2) gave -1, but it should give 3."


def test_an_exception_in_a_check_is_told_with_its_line(tmp_path: Path) -> None:
    ran = checked(tmp_path, "def add(a, b):\n    return a + c\n", ONE_AND_TWO)
    assert "add(1, 2) raised NameError: name 'c' is not defined." in ran.verdict.words
    assert "in line 2, in add: `return a + c`" in ran.verdict.words


def test_a_wanted_exception(tmp_path: Path) -> None:
    code = "def f(x):\n    if x < 0:\n        raise FileNotFoundError(x)\n    return x\n"
    assert checked(tmp_path, code, Example(call="f(-1)", raises="OSError")).verdict.passed


def test_a_wanted_exception_that_does_not_come(tmp_path: Path) -> None:
    ran = checked(tmp_path, "def f(x):\n    return x\n", Example(call="f(-1)", raises="ValueError"))
    assert ran.verdict.words.endswith("f(-1) gave -1, but it should give ValueError (raised).")


@pytest.mark.parametrize(
    "ending",
    ["import sys; sys.exit(0)", "import os; os._exit(0)", "raise SystemExit", "import os; os.kill(os.getpid(), 9)",
     "quit()", "exit(0)"],
)  # fmt: skip
def test_a_program_that_ends_itself_has_passed_nothing(tmp_path: Path, ending: str) -> None:
    """At the top level of the program, and inside of the function that is checked."""
    ran = checked(tmp_path, f"if True:\n    {ending}\n{ADD}", ONE_AND_TWO)
    assert not ran.verdict.passed
    assert ran.verdict.words


def test_a_check_that_ends_the_process_has_passed_nothing(tmp_path: Path) -> None:
    ran = checked(tmp_path, "import os\n\ndef add(a, b):\n    os._exit(0)\n", ONE_AND_TWO)
    assert not ran.verdict.passed


def test_a_value_that_says_it_equals_everything(tmp_path: Path) -> None:
    methods = "    def __eq__(self, other):\n        return True\n    def __repr__(self):\n        return 'A'\n"
    code = f"class A:\n{methods}\ndef add(a, b):\n    return A()\n"
    ran = checked(tmp_path, code, ONE_AND_TWO)
    assert ran.verdict.words.endswith("add(1, 2) gave A, but it should give 3.")


@pytest.mark.parametrize(
    ("value", "expected", "good"),
    [("0.1 + 0.2", "0.3", True), ("0.3001", "0.3", False), ("[1, 2]", "(1, 2)", False),
     ("{1: 2.0000001}", "{1: 2.0}", True),
     ("float('nan')", "float('nan')", True), ("True", "1", True), ("'a'", "['a']", False), ("None", "None", True),
     ("{'b': 1, 'a': 2}", "{'a': 2, 'b': 1}", True), ("'1.0'", "1.0", False), ("[0.5, [1.5]]", "[0.5, [1.5]]", True)],
)  # fmt: skip
def test_what_counts_as_equal(tmp_path: Path, value: str, expected: str, *, good: bool) -> None:
    code = f"def f():\n    return {value}\n"
    assert checked(tmp_path, code, Example(call="f()", expected=expected)).verdict.passed is good


def test_example_calls_of_the_program_are_not_run_in_checks(tmp_path: Path) -> None:
    calls = "print(add('x', 1))\nassert add(1, 1) == 3\nname = input('who? ')\nif __name__ == '__main__':\n    1 / 0\n"
    code = f"{ADD}\n{calls}"
    ran = checked(tmp_path, code, ONE_AND_TWO)
    assert ran.verdict.passed
    assert ran.out == ""


def test_tests_of_every_kind(tmp_path: Path) -> None:
    tests = """
import unittest
from main import add
from solution import add as same

assert add(1, 1) == 2
assert same is add

def test_strings():
    assert add("a", "b") == "ab"

class Numbers(unittest.TestCase):
    def test_floats(self):
        self.assertAlmostEqual(add(0.1, 0.2), 0.3)

if __name__ == "__main__":
    unittest.main()
"""
    ran = checked(tmp_path, ADD, tests=tests)
    assert ran.verdict == Verdict(passed=True, checks_passed=4, checks=4), ran.err


def test_a_test_that_fails_says_what_it_got(tmp_path: Path) -> None:
    tests = "def test_it():\n    assert add(2, 2) == 5\n\nassert add(0, 0) > 0\n"
    ran = checked(tmp_path, ADD, tests=tests)
    assert "2 of 2 checks failed." in ran.verdict.words
    assert "add(2, 2) gave 4, but it should give 5." in ran.verdict.words
    assert "assert add(0, 0) > 0 raised AssertionError" in ran.verdict.words


def test_a_hidden_check_function_like_those_of_humaneval(tmp_path: Path) -> None:
    asserts = "    assert candidate(1, 2) == 3\n    assert abs(candidate(0.1, 0.2) - 0.3) < 1e-6\n"
    tests = f"def check(candidate):\n{asserts}\ncheck(add)\n"
    assert checked(tmp_path, ADD, tests=tests).verdict.passed
    (tmp_path / "second").mkdir()
    assert not checked(tmp_path / "second", ADD.replace("+", "*"), tests=tests).verdict.passed


def test_a_loop_without_end_is_ended_and_says_where_it_was(tmp_path: Path) -> None:
    begun = time.monotonic()
    ran = checked(tmp_path, "def add(a, b):\n    while True:\n        a += 0\n", ONE_AND_TWO, limit_s=1.0)
    assert time.monotonic() - begun < 30
    assert (ran.status, ran.report.timed_out) == (124, True)
    assert ran.verdict.words.startswith("The program failed in line ")
    assert "in add" in ran.verdict.words
    assert "it did not end within 1 s" in ran.verdict.words


def test_a_program_that_cannot_be_asked_to_end_is_killed(tmp_path: Path) -> None:
    code = "import signal\nfor n in (6, signal.SIGTERM, signal.SIGINT):\n    signal.signal(n, signal.SIG_IGN)\n"
    ran = checked(tmp_path, f"{code}while True:\n    pass\n", limit_s=0.5)
    assert ran.report.timed_out


def test_nothing_that_a_program_started_is_alive_afterwards(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys\n"
        "one = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        open('pid', 'w').write(str(os.getpid()))\n"
        "        os.execvp('sleep', ['sleep', '1000'])\n    os._exit(0)\n"
        "import time\nwhile not os.path.exists('pid') or not open('pid').read():\n    time.sleep(0.01)\n"
        "print(one.pid)\n"
    )
    ran = checked(tmp_path, code)
    assert ran.verdict.passed, ran.err
    assert ran.report.left >= 2
    for pid in (int(ran.out), int((tmp_path / "1" / "pid").read_text())):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_script_is_run_as_python_runs_it(tmp_path: Path) -> None:
    code = "import sys\nif __name__ == '__main__':\n    print(sys.argv[0], 6 * 7)\n"
    ran = checked(tmp_path, code)
    assert (ran.verdict.passed, ran.out) == (True, "main.py 42\n")


@pytest.mark.parametrize(
    ("code", "words"),
    [("1 / 0\n", "ZeroDivisionError: division by zero"), ("import sys\nsys.exit(3)\n", "status 3"),
     ("import nowhere_to_be_found\n", "ModuleNotFoundError"), ("def f(:\n", "SyntaxError"),
     ("import sys\nsys.exit('no input')\n", "no input"), ("import os\nos.abort()\n", "main.py")],
)  # fmt: skip
def test_a_script_that_fails(tmp_path: Path, code: str, words: str) -> None:
    ran = checked(tmp_path, code)
    assert not ran.verdict.passed
    assert words in ran.verdict.words or words in ran.err


def test_output_of_the_program_is_no_report(tmp_path: Path) -> None:
    said = '{"loaded": true, "whole": true, "passed": 9, "exit_code": 0}'
    code = (
        f"import os\n\ndef add(a, b):\n    for fd in range(1, 20):\n        try:\n            os.write(fd, b'{said}')\n"
        "        except OSError:\n            pass\n    os._exit(0)\n"
    )
    ran = checked(tmp_path, code, ONE_AND_TWO)
    assert not ran.verdict.passed
    assert ran.report.passed == 0


def test_what_is_there_before_the_program(tmp_path: Path) -> None:
    job = Job(examples=(ONE_AND_TWO,), prelude="from typing import List\n\ndef helper(x):\n    return x\n")
    code = "def add(a: List[int], b) -> int:\n    return helper(a) + b\n"
    assert Ran(tmp_path, code, job).verdict.passed
