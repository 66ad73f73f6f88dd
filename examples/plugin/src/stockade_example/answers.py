"""An answer protocol: words, then a call between two tags: `<call>{"tool": "shell", "command": "ls"}</call>`."""

import json
import re
from collections.abc import Sequence

from stockade.extend import Answer, Message, Offered, Step, UnreadableAnswer, action_in, spelled, usage_of
from stockade.extend.answers import TextAnswers

_CALL = re.compile(r"\A([^<]*)<call>([^<]*)</call>\s*\Z")


class CallTags(TextAnswers):
    """One action an answer. A `<` in a call is written `\\u003c`, as JSON allows, so that the tags are no guess."""

    name = "call-tag"

    def instructions(self, tools: Sequence[Offered]) -> str:
        return (
            'Answer with a short thought and one call: <call>{"tool": ...}</call>. Write < as \\u003c in it.\n'
            f"Calls:\n{self.listing(tools)}"
        )

    def listing(self, tools: Sequence[Offered]) -> str:
        return "\n".join(f"- {usage_of(tool)}" for tool in tools)

    def parse(self, text: str, tools: Sequence[Offered]) -> Answer:
        found = _CALL.match(text)
        if found is None:
            raise UnreadableAnswer("write one call: <call>{...}</call>, and nothing behind it")
        try:
            call = json.loads(found[2])
        except (ValueError, RecursionError):
            raise UnreadableAnswer("what stands in <call> is not JSON") from None
        if not isinstance(call, dict):
            raise UnreadableAnswer("what stands in <call> is not an object")
        return Answer(thought=found[1].strip() or None, steps=(Step(action=action_in(call, tools)),))

    def write(self, answer: Answer) -> Message:
        call = json.dumps(spelled(answer.steps[0].action)).replace("<", "\\u003c")
        thought = (answer.thought or "").replace("<", "")
        return Message(role="assistant", content=f"{thought}<call>{call}</call>")
