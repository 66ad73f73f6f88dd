"""What an attempt takes, as actions, and what their observations mean."""

import pytest

from stockade.core.actions import Failed, FileContent, FileWritten, Observation, Refused, Shell
from stockade.core.errors import SandboxFailed
from stockade.plugins.coder.answers import Draft
from stockade.plugins.coder.executor import NO_NETWORK, NO_PIP, Executor
from stockade.plugins.coder.program import Example
from stockade.plugins.coder.work import Job
from stockade_sandbox.results import Chunk, CommandOutput

ADD = Draft(code="def add(a, b):\n    return a + b")
CHECKED = Job(examples=(Example(call="add(1, 2)", expected="3"),))
WRITTEN = FileWritten(path="x", size=1)


def ended(status: int, words: str = "") -> CommandOutput:
    return CommandOutput(exit_code=status, chunks=(Chunk.of("stderr", words.encode()),) if words else ())


def said(text: str) -> FileContent:
    return FileContent(path="r", text=text, first=1, last=1, total=1)


def test_the_checks_are_written_once() -> None:
    executor = Executor(CHECKED)
    assert list(executor.actions(1, ADD)) == ["checks", "program", "run", "report"]
    assert executor.goes_on("checks", ADD, WRITTEN)
    assert list(executor.actions(2, ADD)) == ["program", "run", "report"]


def test_a_workspace_is_a_copy_and_the_one_before_it_is_gone() -> None:
    command = Executor(CHECKED, folder="/workspace").actions(7, ADD)["workspace"]
    copy = "mkdir -p /tmp/attempts/7 && cp -a /workspace/. /tmp/attempts/7/"
    assert command == Shell(command=f"rm -rf /tmp/attempts/6; {copy}")


def test_libraries_are_installed_once_and_only_where_there_is_a_network() -> None:
    draft = ADD.model_copy(update={"requirements": ("numpy", "pandas")})
    assert "install" not in Executor(CHECKED).actions(1, draft)
    executor = Executor(CHECKED, online=True)
    install, run = (executor.actions(1, draft)[name] for name in ("install", "run"))
    assert isinstance(install, Shell)
    assert isinstance(run, Shell)
    place = install.command.split("--target ")[1].split(" -- ")[0]
    assert install.command.endswith(f"--target {place} -- numpy pandas")
    assert f"PYTHONPATH={place} python3" in run.command
    assert executor.goes_on("install", draft, ended(0))
    assert "install" not in executor.actions(2, draft.model_copy(update={"requirements": ("pandas", "numpy")}))
    assert "PYTHONPATH" not in str(executor.actions(2, ADD)["run"])


def test_a_python_without_pip_is_named() -> None:
    draft = ADD.model_copy(update={"requirements": ("numpy",)})
    executor, install = Executor(CHECKED, online=True), ended(1, "/usr/bin/python3: No module named pip\n")
    assert not executor.goes_on("install", draft, install)
    assert executor.read(1, 0, draft, {"install": install}).verdict.words == NO_PIP


@pytest.mark.parametrize(
    ("purpose", "observation", "words"),
    [
        ("run", ended(127, "bash: python3: command not found"), "there is no python3 in the sandbox"),
        ("workspace", ended(1, "cp: no space\ncp: No space left on device"), "No space left on device"),
        ("workspace", ended(124), "cannot be copied"),
        ("program", Failed(message="Permission denied"), "the program cannot be written"),
        ("checks", Failed(message="No space"), "the program cannot be written"),
    ],
)
def test_what_is_not_the_program_s_fault_is_never_told_to_the_model(
    purpose: str, observation: Observation, words: str
) -> None:
    with pytest.raises(SandboxFailed, match=words):
        Executor(CHECKED, folder="/workspace").goes_on(purpose, ADD, observation)


def test_a_refused_action_is_a_failed_attempt() -> None:
    executor, refused = Executor(CHECKED), Refused(reason="not allowed here")
    assert not executor.goes_on("run", ADD, refused)
    attempt = executor.read(1, 0, ADD, {"program": WRITTEN, "run": refused})
    assert attempt.verdict.words == "The program was not run: not allowed here"


@pytest.mark.parametrize(
    "report",
    ["", "{", "null", "[]", '{"passed": -1}', '{"passed": 1e999}', '{"exit_code": 0}', '{"exit_code": 0, "passed": 1}',
     '{"exit_code": 0, "passed": 1, "whole": true}', '{"exit_code": 0, "loaded": true, "whole": true}',
     '{"exit_code": 0, "loaded": true, "whole": true, "passed": 5, "failures": 1}', "[" * 100_000],
)  # fmt: skip
def test_a_report_that_was_tampered_with_is_no_success(report: str) -> None:
    seen: dict[str, Observation] = {"run": ended(0), "report": said(report)}
    attempt = Executor(CHECKED).read(1, 0, ADD, seen)
    assert not attempt.verdict.passed
    assert attempt.verdict.words


def test_a_report_that_is_missing() -> None:
    attempt = Executor(CHECKED).read(1, 0, ADD, {"run": ended(137), "report": Failed(message="File not found")})
    assert "used too much memory or time" in attempt.verdict.words


def test_a_library_that_is_not_there_without_a_network() -> None:
    report = '{"loaded": false, "exit_code": 1}'
    trace = 'Traceback (most recent call last):\n  File "main.py", line 1, in <module>\n'
    trace += "ModuleNotFoundError: No module named 'x'"
    attempt = Executor(CHECKED).read(1, 0, ADD, {"run": ended(1, trace), "report": said(report)})
    assert attempt.verdict.words.endswith(NO_NETWORK)


def test_pip_s_last_error_is_what_the_model_is_told() -> None:
    draft = ADD.model_copy(update={"requirements": ("numppy",)})
    output = ended(1, "WARNING: x\nERROR: Could not find a version\nERROR: No matching distribution found for numppy\n")
    executor = Executor(CHECKED, online=True)
    assert not executor.goes_on("install", draft, output)
    assert executor.read(1, 0, draft, {"install": output}).verdict.words == (
        "The libraries could not be installed (numppy): No matching distribution found for numppy\n"
        "Check their names on PyPI, or do without them."
    )
