"""The user of an editor as the one who is asked: about actions, about the network, and what a bot wants to know."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from acp import RequestError
from acp.schema import (
    AcceptElicitationResponse,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    PermissionOption,
    ToolCallUpdate,
)

from stockade.acp.outbox import Outbox
from stockade.acp.story import Story
from stockade.acp.wording import say, words
from stockade.approval.approver import Authoriser, Question
from stockade.approval.network import NetworkAsker
from stockade.core.actions import Action
from stockade.core.events import RunStarted
from stockade.loop.builtin_hooks import Approval
from stockade.loop.pause import PausingPrompt
from stockade.loop.run_context import Dependencies
from stockade.runtime.hooks import make_approver, read_rules

Mode = Literal["ask", "rules", "never"]
MODES: dict[Mode, tuple[str, str]] = {
    "never": ("Sandboxed", "Works without questions in the sandbox; its changes reach the folder when you apply them"),
    "rules": ("Ask by rules", "Asks before what the rules do not call harmless"),
    "ask": ("Ask", "Asks before each action"),
}
_ALLOW = (
    PermissionOption(option_id="y", name="Allow", kind="allow_once"),
    PermissionOption(option_id="run", name="Allow in this session", kind="allow_always"),
    PermissionOption(option_id="always", name="Always allow in this folder", kind="allow_always"),
)
_REFUSE = PermissionOption(option_id="refuse", name="Refuse", kind="reject_once")
_NEVER = PermissionOption(option_id="never", name="Never allow", kind="reject_always")
_REFUSED = "it was refused in the editor, without a word"


class Modes:
    """Implements core.ports.Approver: the one of the mode that the user has chosen, from the next action on."""

    def __init__(self, started: RunStarted, parts: Dependencies, approve: str, mode: Mode) -> None:
        rules = started.rules if started.approve == "rules" else read_rules(approve)
        self.mode: Mode = mode
        self._by: dict[Mode, Authoriser] = {}
        for name in ("ask", "rules"):
            wanted = {"approve": name, "rules": rules if name == "rules" else None}
            made = make_approver(started.model_copy(update=wanted), parts.pause, parts.redactor)
            assert made is not None
            self._by[name] = made
        before = parts.approver
        for made in self._by.values():
            made.changed = before.changed if isinstance(before, Authoriser) else made.changed

    def attach(self, user: "User") -> None:
        for made in self._by.values():
            made.ask = user.approve

    async def judge(self, action: Action) -> str | None:
        if self.mode != "never":
            reason = await self._by[self.mode].judge(action)
            if reason is not None:
                return reason
        for made in self._by.values():
            made.ran((action,))
        return None


class User:
    """Of one session, in its editor."""

    def __init__(self, outbox: Outbox, story: Story, session_id: str) -> None:
        self._outbox, self._story, self._session_id = outbox, story, session_id

    async def approve(self, question: Question, problem: str | None) -> str:
        """The line that a user would have typed."""
        reasons = [f"{one.text.strip()[:200]}: {one.reason}" for one in question.judgements if one.decision != "allow"]
        call = self._story.question(question.action, "\n".join(filter(None, (*reasons, problem))))
        chosen = await self._outbox.choose(call, (*_ALLOW, _REFUSE))
        return _REFUSED if chosen == "refuse" else chosen or "n"

    async def network(self, rule: str, problem: str | None) -> str:
        text = f"A program in the sandbox wants to reach {rule}.{f' {problem}' if problem else ''}"
        call = ToolCallUpdate(
            tool_call_id=self._story.new_id("net"), title=f"reach {rule}", kind="fetch", status="pending",
            content=[words(text)],
        )  # fmt: skip
        chosen = await self._outbox.choose(call, (*_ALLOW, _REFUSE, _NEVER))
        return "n" if chosen in (None, "refuse") else str(chosen)

    async def answer(self, question: str) -> str | None:
        """By a form of the editor."""
        schema = ElicitationSchema(
            properties={"answer": ElicitationStringPropertySchema(type="string", title="Answer")}
        )
        form = ElicitationFormSessionMode(session_id=self._session_id, mode="form", requested_schema=schema)
        await self._outbox.flushed()
        try:
            reply = await self._outbox.client.create_elicitation(message=question, mode=form)
        except (RequestError, ConnectionError, ValueError) as error:
            say(f"session {self._session_id}: the editor could not ask: {error}")
            return None
        content = reply.content if isinstance(reply, AcceptElicitationResponse) else None
        said = (content or {}).get("answer")
        return said if isinstance(said, str) and said.strip() else None


def attach(parts: Dependencies, modes: Modes, user: User, *, forms: bool) -> Dependencies:
    """The run with this user in it. `forms`: the editor can put a question that is answered in words."""
    modes.attach(user)
    if isinstance(parts.network, NetworkAsker):
        parts.network.ask = user.network
    if forms and isinstance(parts.asker, PausingPrompt):
        parts.asker.answer = user.answer
    others = tuple(hook for hook in parts.hooks if not isinstance(hook, Approval))
    return replace(parts, approver=modes, hooks=(*others, Approval(modes)))


def hook_names(parts: Dependencies) -> Sequence[str]:
    return tuple(hook.name for hook in parts.hooks)
