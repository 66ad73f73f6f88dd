"""One program, run in a workspace of its own: the actions that this takes, and what their observations say of it.

All of it is actions on record, so that a run can be shown, exported and done again. The runner is mounted read-only at
RUNNER_AT; everything else is below ATTEMPTS.
"""

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from stockade.core.actions import Action, FileContent, Observation, ReadFile, Refused, Shell, WriteFile
from stockade.core.errors import SandboxFailed
from stockade.plugins.coder.answers import Draft
from stockade.plugins.coder.program import Signature, conform, example_lines
from stockade.plugins.coder.work import FILE, RUNNER, Attempt, Job, Verdict, judge, read_report
from stockade_sandbox.policy import OURS
from stockade_sandbox.results import CommandOutput

ATTEMPTS, LIBRARIES, RUNNER_AT = "/tmp/attempts", "/tmp/libraries", f"/{OURS}"
_SLACK_S = 5.0
_REFUSED = re.compile(r"Tunnel connection failed: \d+ (?:stockade: )?([^'\n]{1,200})")
_NOT_FOUND = 127
_MAX_WORDS_CHARS = 500
NAME_IT = "Libraries are installed when their names stand under ### Requirements."
NO_NETWORK = "Nothing can be installed, for there is no network: use the standard library only."
NO_PIP = (
    "Nothing can be installed, for there is no pip (Debian: apt install python3-pip): use the standard library only."
)


@dataclass(slots=True)
class Executor:
    """Plans the actions of an attempt and reads what came of them. `folder`: the user's files, copied into each
    workspace. `online`: libraries can be installed.
    """

    job: Job
    folder: str | None = None
    online: bool = False
    signature: Signature | None = None
    _ready: set[str] = field(default_factory=set)
    _begun: bool = False

    def program(self, draft: Draft) -> tuple[str, str | None]:
        """What main.py holds, and what is wrong with its signature. Without checks the example is part of it."""
        code, wrong = f"{draft.code.rstrip()}\n", None
        if self.signature is not None:
            code, wrong = conform(code, self.signature)
        return (code if self.job.has_checks else draft.model_copy(update={"code": code}).script), wrong

    def actions(self, number: int, draft: Draft) -> Mapping[str, Action]:
        """By what they are for, in order; each once they all went well so far."""
        folder, code = f"{ATTEMPTS}/{number}", self.program(draft)[0]
        result: dict[str, Action] = {}
        if not self._begun:
            if self.job.stdin:
                result["stdin"] = WriteFile(path=f"{ATTEMPTS}/stdin", content=self.job.stdin)
            result["checks"] = WriteFile(path=f"{ATTEMPTS}/job.json", content=self.job.text() + "\n")
        if self.folder is not None:
            old = f"rm -rf {ATTEMPTS}/{number - 1}; " if number > 1 else ""
            result["workspace"] = Shell(command=f"{old}mkdir -p {folder} && cp -a {self.folder}/. {folder}/")
        result["program"] = WriteFile(path=f"{folder}/{FILE}", content=code)
        libraries = _libraries_folder(draft) if self.online else None
        if libraries is not None and libraries not in self._ready:
            words = shlex.join(draft.requirements)
            pip = "python3 -m pip install --quiet --disable-pip-version-check --no-input --retries 1"
            result["install"] = Shell(command=f"{pip} --target {libraries} -- {words}")
        skipped = ",".join(str(line) for line in example_lines(code)) if self.job.has_checks else ""
        path = f"PYTHONPATH={libraries} " if libraries is not None else ""
        run = f"{path}python3 {RUNNER_AT}/{RUNNER} ../job.json ../{number}.json {skipped}".rstrip()
        run += " < ../stdin" if self.job.stdin else ""
        result["run"] = Shell(command=f"(cd {folder} && {run})", timeout_s=self.job.limit_s + _SLACK_S)
        result["report"] = ReadFile(path=f"{ATTEMPTS}/{number}.json")
        return result

    def goes_on(self, purpose: str, draft: Draft, observation: Observation) -> bool:
        """Whether the next action makes sense after this one. SandboxFailed for what is not the program's fault."""
        failed = not isinstance(observation, CommandOutput) or observation.exit_code != 0
        match purpose:
            case "workspace" if failed:
                cause = _last_line(observation)
                raise SandboxFailed(
                    f"the folder cannot be copied for an attempt: {cause}", "name a smaller --folder, or --copy files"
                )
            case "run" if isinstance(observation, CommandOutput) and observation.exit_code == _NOT_FOUND:
                raise SandboxFailed("there is no python3 in the sandbox", "use an image with Python 3.8 or later")
            case "install" if failed:
                return False
            case "install":
                self._ready.add(_libraries_folder(draft) or "")
            case "run" | "report" | "workspace":
                pass
            case _ if observation.kind != "written":
                if isinstance(observation, Refused):
                    return False
                raise SandboxFailed(f"the program cannot be written: {_last_line(observation)}", "is the disk full?")
            case "checks":
                self._begun = True
        return not isinstance(observation, Refused)

    def read(self, number: int, start: int, draft: Draft, seen: Mapping[str, Observation], answer: str = "") -> Attempt:
        """What came of it all; `seen` by purpose, as far as it was done, of the program in `answer`."""
        run, said = seen.get("run"), seen.get("report")
        output = run if isinstance(run, CommandOutput) else None
        stderr = (output.stderr or output.output).decode(errors="replace") if output is not None else ""
        code, wrong = self.program(draft)
        if output is not None:
            report = read_report(said.text) if isinstance(said, FileContent) else None
            verdict = judge(code, self.job, report, stderr)
            if wrong is not None:  # whoever called it by these names could not
                verdict = verdict.model_copy(update={"passed": False})
            verdict = self._explained(verdict, wrong)
        else:
            verdict = Verdict(passed=False, words=_not_run(draft, seen))
        return Attempt(
            number=number,
            start=start,
            answer=answer,
            code=code,
            requirements=draft.requirements,
            verdict=verdict,
            stdout=output.stdout.decode(errors="replace") if output is not None else "",
            stderr=stderr,
            exit_code=output.exit_code if output is not None else None,
            duration_s=output.duration_s if output is not None else 0.0,
        )

    def _explained(self, verdict: Verdict, wrong: str | None) -> Verdict:
        """With what is known of why."""
        if verdict.passed:
            return verdict
        words = verdict.words
        if wrong is not None:  # what its checks gave says nothing of it
            return verdict.model_copy(update={"words": f"{wrong[0].upper()}{wrong[1:]}.", "wrong": ()})
        if "ModuleNotFoundError" in words:
            words = f"{words} {NAME_IT if self.online else NO_NETWORK}"
        return verdict.model_copy(update={"words": words})


def _libraries_folder(draft: Draft) -> str | None:
    """Where exactly these libraries are, so that none of an earlier attempt is there; None when there are none."""
    if not draft.requirements:
        return None
    return f"{LIBRARIES}/{hashlib.sha256(' '.join(sorted(draft.requirements)).encode()).hexdigest()[:12]}"


def _not_run(draft: Draft, seen: Mapping[str, Observation]) -> str:
    refused = next((one.reason for one in seen.values() if isinstance(one, Refused)), None)
    if refused is not None:
        return f"The program was not run: {refused}"
    output = seen.get("install")
    stderr = output.output.decode(errors="replace") if isinstance(output, CommandOutput) else ""
    if (refused_by := _REFUSED.search(stderr)) is not None:
        return f"Nothing can be installed, for the network refuses it ({refused_by[1]}): use the standard library only."
    if "No module named pip" in stderr:
        return NO_PIP
    errors = [line.partition("ERROR:")[2].strip() for line in stderr.splitlines() if "ERROR:" in line]
    cause = (errors[-1] if errors else stderr.strip()[-_MAX_WORDS_CHARS:] or "pip failed")[:_MAX_WORDS_CHARS]
    return (
        f"The libraries could not be installed ({', '.join(draft.requirements)}): {cause}\n"
        "Check their names on PyPI, or do without them."
    )


def _last_line(observation: Observation) -> str:
    text = observation.output.decode(errors="replace") if isinstance(observation, CommandOutput) else str(observation)
    return (text.strip().splitlines() or ["no word of why"])[-1][:_MAX_WORDS_CHARS]
