"""Answers as one fenced block: ```` ```bash ```` is a command, ```` ```finish ```` the end.

The first block counts and the rest is cut: small models write the command and, right behind it, the block that says
they are done. What a block cannot spell exactly goes into the history as a ```` ```json ```` block with the action.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stockade.answers.action_codec import further, short_thought
from stockade.answers.blocks import (
    LONGER,
    TEXTS,
    Block,
    action_of,
    as_lines,
    block_of,
    fenced,
    find_blocks,
    is_action,
    languages,
    usage_of,
)
from stockade.answers.calls import TextAnswers, as_json, salvaged
from stockade.core.actions import Action, Answer, Step, ToolCall
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import Message, ModelRequest
from stockade.core.tools import Offered

STOP = ("```\n\n```bash",)
"""A second command right behind the first one would be cut anyway."""


@dataclass(frozen=True, slots=True)
class FencedAnswers(TextAnswers):
    """One action an answer."""

    name: str = "fenced"

    def instructions(self, tools: Sequence[Offered]) -> str:
        longer = f"\nA{LONGER[1:]}." if "write_file" in tools or "edit_file" in tools else ""
        return f"Answer with one short sentence and then exactly one block of these:\n{self.listing(tools)}{longer}"

    def listing(self, tools: Sequence[Offered]) -> str:
        return "\n".join(usage_of(tool) for tool in tools) + further(tools, "in a ```json block")

    def constrain(self, request: ModelRequest, tools: Sequence[Offered]) -> ModelRequest:
        return request.model_copy(update={"stop": STOP})

    def parse(self, text: str, tools: Sequence[Offered]) -> Answer:
        if not text.strip():
            raise UnreadableAnswer("the answer is empty: write one block, such as a bash block")
        blocks = find_blocks(text)
        chosen = next((block for block in blocks if is_action(block, tools) or _as_json(block, tools)), None)
        if chosen is None:
            return _blockless(text, blocks, tools)
        action = _as_json(chosen, tools) or action_of(chosen, tools)
        behind = blocks[blocks.index(chosen) + 1 :]
        if chosen.language in TEXTS and any(not block.language for block in behind):
            raise UnreadableAnswer(f"a bare fence stands behind the {chosen.language} block: {LONGER}")
        return Answer(thought=short_thought(text[: blocks[0].start]), steps=(Step(action=action),))

    def write(self, answer: Answer) -> Message:
        block = "\n".join(spelled(step.action) for step in answer.steps)
        thought = re.sub(r"`{3,}", "``", answer.thought or "")
        return Message(role="assistant", content=f"{thought}\n{block}" if thought else block)


def _as_json(block: Block, tools: Sequence[Offered]) -> Action | None:
    """The action of a block that holds JSON; None where it holds none."""
    if block.language not in ("json", "") or not block.body.lstrip().startswith("{"):
        return None
    found = salvaged(block.body, tools)
    return found[1] if found else None


def _blockless(text: str, blocks: Sequence[Block], tools: Sequence[Offered]) -> Answer:
    """JSON without a fence is taken; anything else is an error that says what was there instead."""
    if not blocks and (found := salvaged(text, tools)) is not None:
        return Answer(thought=short_thought(found[0]), steps=(Step(action=found[1]),))
    seen = f"its blocks are in: {languages(blocks)}" if blocks else "it has no block"
    raise UnreadableAnswer(f"the answer holds no action ({seen}): write the command in one bash block")


def spelled(action: Action) -> str:
    """The block of an action, as JSON where only that keeps every character."""
    form = block_of(action)
    if form is not None:
        text = fenced(*form)
        if isinstance(action, ToolCall):
            return text
        try:
            found = find_blocks(text)
            if len(found) == 1 and action_of(found[0], (action.tool, "finish")) == action:
                return text
        except UnreadableAnswer:
            pass  # An empty command, half a here-document: only JSON can say it.
    return fenced("json", "", as_lines(as_json(action)))
