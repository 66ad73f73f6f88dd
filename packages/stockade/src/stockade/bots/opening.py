"""The system prompt of a run: the bot's role, how to answer, and what is in the folder."""

from collections.abc import Sequence
from pathlib import Path

from stockade.bots.spec import BotSpec
from stockade.bots.surroundings import guidance, surroundings
from stockade.core.actions import BUILT_IN_TOOLS
from stockade.core.ports import AnswerProtocol
from stockade.core.text import reachable
from stockade_sandbox.policy import FolderRule, Policy


def opening(
    spec: BotSpec,
    protocol: AnswerProtocol,
    policy: Policy,
    actions: Sequence[str] | None = None,
    usage: Sequence[str] = (),
    *,
    here: bool = True,
    lines: bool = False,
) -> str:
    """What never changes in a run. `actions`: built-in ones, None for the bot's; `usage`: on programs for the shell.

    Reads the first folder on the host, whatever its mode, if it is `here` and not another machine's. `lines`: shows the
    first lines of its files, not their names alone; for a model that is on this machine.
    """
    offered = [tool for tool in spec.all_tools if tool in BUILT_IN_TOOLS] if actions is None else actions
    parts = [filled(spec.prompt, policy, offered)]
    if message := given(spec.prompt, policy, knows_readonly=spec.folder_mode == "ro"):
        parts.append(message)
    parts += [*usage, protocol.instructions(offered)]
    folder = Path(policy.folder.host) if policy.folder is not None and here else None
    if folder and not spec.autonomous and (message := guidance(folder, policy.workdir)):
        parts.append(message)
    if spec.shows_folder and folder and (content := surroundings(folder, lines=lines)):
        parts.append(f"What is in {policy.workdir} now:\n{content}")
    return "\n".join(parts)


_WORKDIR, _NETWORK, _NOBODY = "{workdir}", "{network}", "{nobody}"


def filled(prompt: str, policy: Policy, actions: Sequence[str]) -> str:
    """The prompt with its marks replaced; other braces stay as they are."""
    nobody = "nobody to ask but the user (ask_user)" if "ask_user" in actions else "nobody to ask"
    text = prompt.replace(_WORKDIR, policy.workdir)
    return text.replace(_NETWORK, reachable(policy.network)).replace(_NOBODY, nobody)


def given(prompt: str, policy: Policy, *, knows_readonly: bool) -> str:
    """Sentences on what the prompt does not say itself; "" when there is nothing to say.

    `knows_readonly`: it says that the first folder can only be read.
    """
    lines = []
    first, *others = policy.folders or (None,)
    if first is not None and first.mode == "ro" and not knows_readonly:
        lines.append(f"{first.inside} can only be read.")
    if others:
        lines.append(f"More folders of the user: {', '.join(map(_named, others))}.")
    if copies := [copy.inside for copy in policy.copies if copy.inside not in prompt]:
        lines.append(f"Copied in for you: {', '.join(copies)}.")
    if _NETWORK not in prompt and policy.network.mode != "none":
        lines.append(f"There is {reachable(policy.network)}.")
    return " ".join(lines)


def _named(rule: FolderRule) -> str:
    return f"{rule.inside} (can only be read)" if rule.mode == "ro" else rule.inside
