"""Who may say no in a run: `--approve`, and what the user has allowed for always in that place."""

import os
from typing import TYPE_CHECKING

from stockade.approval.authorise import Authoriser
from stockade.core.events import RunStarted
from stockade.core.ports import Approver
from stockade.core.secrets import Redactor
from stockade.loop.pause import Pause
from stockade.options import REMOTE
from stockade.places import state_dir

if TYPE_CHECKING:
    from stockade.approval.remembered import ApprovalFile


def approval_file() -> "ApprovalFile":
    """Where the user's approvals are kept."""
    from stockade.approval.remembered import ApprovalFile

    return ApprovalFile(state_dir() / "approvals.jsonl")


def make_approver(started: RunStarted, pause: Pause, redactor: Redactor) -> Approver | None:
    """`ask`: every action but the end is asked about. `rules`: what the careful rules do not allow by themselves.

    What holds a secret that `redactor` knows is not written down.
    """
    rules: Approver | None = None
    if started.approve != "never":
        from stockade.approval.approver import RulesApprover
        from stockade.approval.remembered import Remembered
        from stockade.approval.rules import RuleSet, rule_set

        chosen = rule_set("careful") if started.approve == "rules" else RuleSet()
        remembered = Remembered(approval_file(), place_of(started), started.bot, redactor.names)
        rules = RulesApprover(chosen, None, remembered, pause.away)
    return Authoriser(pause, rules) if started.authorised else rules


def place_of(started: RunStarted) -> tuple[str, ...]:
    """What an approval holds for: the real paths of the run's folders with their modes, behind the other machine, or
    the word that nothing is sealed.
    """
    far = started.sandbox.startswith(REMOTE.rstrip("="))
    folders = (f"{rule.host if far else os.path.realpath(rule.host)}:{rule.mode}" for rule in started.policy.folders)
    return (*((started.sandbox,) if far or started.sandbox == "unconfined" else ()), *folders)


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
