"""The system prompt of a run: the bot's role, how to answer, one example of it, and what is in the folder."""

from collections.abc import Sequence
from pathlib import Path

from stockade.bots.given import filled, given
from stockade.bots.guidance import guidance
from stockade.bots.spec import BotSpec, Example
from stockade.bots.surroundings import surroundings
from stockade.core.actions import BUILT_IN_TOOLS, Answer, Step
from stockade.core.ports import AnswerProtocol
from stockade_sandbox.policy import Policy


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
    if words := given(spec.prompt, policy, knows_readonly=spec.folder_mode == "ro"):
        parts.append(words)
    parts += [*usage, protocol.instructions(offered)]
    folder = Path(policy.folders[0].host) if policy.folders and here else None
    if folder and not spec.autonomous and (words := guidance(folder, policy.workdir)):
        parts.append(words)
    if spec.example is not None:
        parts.append(_spelled(spec.example, protocol))
    if spec.shows_folder and folder and (found := surroundings(folder, lines=lines)):
        parts.append(f"What is in {policy.workdir} now:\n{found}")
    return "\n".join(parts)


def _spelled(example: Example, protocol: AnswerProtocol) -> str:
    """In the words of the protocol, so that nothing has to be unlearned."""
    lines = [f"An example. Task: {example.task}"]
    for thought, action, seen in example.turns:
        step = Step(action=action)
        answer = protocol.write(Answer(thought=thought, steps=(step,)))
        lines.append(_as_text(answer.content, answer.tool_calls))
        if seen:
            lines.append(seen)
    return "\n".join([*lines, "End of the example. From here on everything is real."])


def _as_text(content: str, calls: Sequence[object] | None) -> str:
    return content if not calls else f"{content} {calls[0]}".strip()
