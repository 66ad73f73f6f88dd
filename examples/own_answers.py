"""An answer protocol of your own: how a model spells what it wants to do.

    python examples/own_answers.py

`<run>COMMAND</run>` and `<done>ANSWER</done>`, for a model that was trained on tags. A protocol is a few pure functions
over the one action union, so it works with every model, bot and sandbox. Tools that it cannot spell are not offered.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stockade.core.actions import Action, Answer, Finish, Shell, Step
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import Message, ModelAnswer, ModelRequest
from stockade.core.tools import Offered

_TAG = re.compile(r"<(run|done)>(.*?)</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TagAnswers:
    """Implements core.ports.AnswerProtocol with shell and finish."""

    name: str = "tags"

    def instructions(self, tools: Sequence[Offered]) -> str:
        return "Answer with one <run>bash command</run>, or with <done>the answer</done> when the task is done."

    def listing(self, tools: Sequence[Offered]) -> str:
        return ""  # tags cannot spell other tools

    def constrain(self, request: ModelRequest, tools: Sequence[Offered]) -> ModelRequest:
        return request

    def read(self, answer: ModelAnswer, tools: Sequence[Offered]) -> Answer:
        found = _TAG.search(answer.content)
        if found is None or not found[2].strip():
            raise UnreadableAnswer("no action found: write <run>command</run> or <done>answer</done>")
        text = found[2].strip()
        action: Action = Shell(command=text) if found[1] == "run" else Finish(answer=text)
        return Answer(thought=answer.content[: found.start()].strip() or None, steps=(Step(action=action),))

    def write(self, answer: Answer) -> Message:
        action = answer.steps[0].action
        match action:
            case Shell():
                spelled = f"<run>{action.command}</run>"
            case Finish():
                spelled = f"<done>{action.answer}</done>"
            case _:
                raise UnreadableAnswer(f"tags have no way to say {action.tool}")
        return Message(role="assistant", content=f"{answer.thought or ''}\n{spelled}".strip())

    def observed(self, step: Step, text: str) -> Message:
        return Message(role="user", content=text)


if __name__ == "__main__":
    protocol = TagAnswers()
    answer = protocol.read(
        ModelAnswer(content="I look first.\n<run>ls -la</run>\n<done>ok</done>"), ("shell", "finish")
    )
    print(answer.thought, "->", answer.steps[0].action)
    print(protocol.write(answer).content)
