"""Who may say no in a run: `--approve`, and what the user has allowed for always in that place."""

import os

from stockade.approval.approver import Authoriser, RulesApprover
from stockade.approval.remembered import ApprovalFile, Remembered
from stockade.approval.rules import RuleSet, rule_set
from stockade.core.events import RunStarted
from stockade.core.ports import Approver
from stockade.core.secrets import Redactor
from stockade.loop.pause import Pause
from stockade.paths import state_dir
from stockade.runtime.spec import REMOTE
from stockade_sandbox.overlay.safe_fs import birth_ns, filesystem


def approval_file() -> ApprovalFile:
    """Where the user's approvals are kept."""
    return ApprovalFile(state_dir() / "approvals.jsonl")


def make_approver(started: RunStarted, pause: Pause, redactor: Redactor) -> Approver | None:
    """`ask`: every action but the end is asked about. `rules`: what the careful rules do not allow by themselves.

    What holds a secret that `redactor` knows is not written down.
    """
    rules: Approver | None = None
    if started.approve != "never":
        chosen = rule_set("careful") if started.approve == "rules" else RuleSet()
        folders = folders_of(started)
        remembered = Remembered(approval_file(), place_of(started), started.bot, redactor.names, folders)
        rules = RulesApprover(chosen, None, remembered, pause.away)
    return Authoriser(pause, rules) if started.authorised else rules


def place_of(started: RunStarted) -> tuple[str, ...]:
    """What an approval holds for: the real paths of the run's folders with their modes, behind the other machine, or
    the word that nothing is sealed.
    """
    far = started.sandbox.startswith(REMOTE.rstrip("="))
    folders = (f"{rule.host if far else os.path.realpath(rule.host)}:{rule.mode}" for rule in started.policy.folders)
    return (*((started.sandbox,) if far or started.sandbox == "unconfined" else ()), *folders)


def folders_of(started: RunStarted) -> tuple[str, ...]:
    """What tells the run's folders from others that are put in their place later: file system, inode, birth (ns).

    Empty of another machine's. A folder that was moved is asked about anew by its path.
    """
    found = []
    for rule in started.policy.folders if not started.sandbox.startswith(REMOTE.rstrip("=")) else ():
        try:
            fd = os.open(rule.host, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # the run will say so
            found.append("")
            continue
        try:
            real = os.path.realpath(rule.host)
            found.append(f"{filesystem(fd):x}-{os.fstat(fd).st_ino}-{birth_ns(fd, real)}")
        finally:
            os.close(fd)
    return tuple(found)


def approval_notes(started: RunStarted) -> tuple[str, ...]:
    """What the user should know of the permissions on this machine, a line each."""
    if started.approve == "never":
        return ()
    old = state_dir() / "allowed"
    lines = approval_file().read().problems
    if old.exists():
        gone = f"{old} is not read any more: it held for every folder and bot. Answer [a]lways anew, and remove it"
        lines = (gone, *lines)
    return lines
