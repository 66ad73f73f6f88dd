"""Conversations for templates that have no system role, or know nothing of tools.

Without a system role the system prompt is the head of the first user message. Without tools their definitions stand in
the system prompt, calls are written as text in the form that answers/native_tools.py reads back, and results are user
messages. Neighbours of one role are joined then, since such templates want roles to alternate.
"""

import json
from collections.abc import Sequence
from typing import Any

from stockade.core.data import Data
from stockade.core.messages import Message


class Roles(Data):
    """What a model's template has."""

    system: bool = True
    tools: bool = True


class RoleAdapter:
    """Adapts a conversation that only grows; messages that were adapted before are the same objects again."""

    def __init__(self) -> None:
        self._roles = Roles()
        self._tools: Sequence[dict[str, Any]] | None = None
        self._seen: list[Message] = []
        self._sent: list[Message] = []

    def messages(
        self, messages: tuple[Message, ...], roles: Roles, tools: Sequence[dict[str, Any]] | None = None
    ) -> tuple[Message, ...]:
        """`messages` as the template can take them; the very same where it can take everything."""
        if roles.system and roles.tools:
            return messages
        offered = None if roles.tools else tools
        same = len(self._seen) <= len(messages) and all(
            old is new for old, new in zip(self._seen, messages, strict=False)
        )
        if not same or roles != self._roles or offered != self._tools:
            self._seen, self._sent = [], []
            self._roles, self._tools = roles, offered
        for message in messages[len(self._seen) :]:
            self._add(message)
        self._seen = list(messages)
        return tuple(self._sent)

    def _add(self, message: Message) -> None:
        role, content = message.role, message.content
        if not self._sent and self._tools:
            content = f"{content}\n\n{described(self._tools)}" if role == "system" else content
        if role == "tool" and not self._roles.tools:
            role = "user"
        if role == "system" and not self._roles.system:
            role = "user"
        calls = message.tool_calls
        if calls and not self._roles.tools:
            content = "\n".join([content, *map(_spelled, calls)] if content.strip() else map(_spelled, calls))
            calls = None
        last = self._sent[-1] if self._sent else None
        if last is not None and last.role == role and role != "tool" and not last.tool_calls and not calls:
            self._sent[-1] = Message(role=role, content=f"{last.content}\n\n{content}")
        elif (role, content, calls) == (message.role, message.content, message.tool_calls):
            self._sent.append(message)
        else:
            known = message.tool_call_id if role == "tool" else None
            self._sent.append(Message(role=role, content=content, tool_calls=calls, tool_call_id=known))


def described(tools: Sequence[dict[str, Any]]) -> str:
    """Tools in words, for a model whose template has no place for them."""
    lines = [json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools]
    return "\n".join([
        "These are the tools, each as JSON:", *lines,
        'Call one by writing exactly: <tool_call>{"name": "NAME", "arguments": {...}}</tool_call>',
    ])  # fmt: skip


def _spelled(call: dict[str, Any]) -> str:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return f'<tool_call>{{"name": {json.dumps(function.get("name"))}, "arguments": {text or "{}"}}}</tool_call>'
