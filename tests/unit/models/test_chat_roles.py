"""Conversations for templates that lack a role."""

from stockade.answers.calls import salvaged
from stockade.core.messages import Message
from stockade.models.openai_request import RoleAdapter, described

SYSTEM = Message(role="system", content="Be brief.")
TASK = Message(role="user", content="Look.")
CALL = Message(
    role="assistant",
    content="I look.",
    tool_calls=({"id": "1", "function": {"name": "shell", "arguments": '{"command": "ls \\"a\\""}'}},),
)
RESULT = Message(role="tool", content="a b", tool_call_id="1")
TOOL = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}


def test_a_template_with_everything_gets_the_very_same() -> None:
    conversation = (SYSTEM, TASK, CALL, RESULT)
    assert RoleAdapter().messages(conversation, frozenset(), (TOOL,)) is conversation


def test_without_system_role() -> None:
    joined, call, result = RoleAdapter().messages((SYSTEM, TASK, CALL, RESULT), frozenset({"system"}), (TOOL,))
    assert joined == Message(role="user", content="Be brief.\n\nLook.")
    assert call is CALL
    assert result is RESULT


def test_without_tools_calls_are_text_that_we_read_back() -> None:
    system, task, call, result = RoleAdapter().messages((SYSTEM, TASK, CALL, RESULT), frozenset({"tools"}), (TOOL,))
    assert (system.role, task) == ("system", TASK)
    assert described((TOOL,)) in system.content
    assert (result.role, result.content, result.tool_call_id) == ("user", "a b", None)
    assert call.tool_calls is None
    found = salvaged(call.content, ("shell",))
    assert found is not None
    assert found[1].model_dump(exclude_none=True) == {"tool": "shell", "command": 'ls "a"'}


def test_several_calls_and_several_results_are_joined() -> None:
    conversation = (TASK, CALL, RESULT, RESULT, TASK)
    sent = RoleAdapter().messages(conversation, frozenset({"system", "tools"}))
    assert [message.role for message in sent] == ["user", "assistant", "user"]
    assert sent[2].content == "a b\n\na b\n\nLook."


def test_what_was_adapted_is_the_same_object_again() -> None:
    adapter = RoleAdapter()
    roles = frozenset({"system", "tools"})
    before = adapter.messages((SYSTEM, TASK, CALL), roles)
    after = adapter.messages((SYSTEM, TASK, CALL, RESULT, CALL), roles)
    assert before
    assert all(new is old for old, new in zip(before, after, strict=False))
    other = adapter.messages((TASK,), roles)
    assert other == (TASK,)


def test_odd_calls_break_nothing() -> None:
    odd = Message(role="assistant", content="", tool_calls=({}, {"function": {"name": None, "arguments": {"a": 1}}}))
    (sent,) = RoleAdapter().messages((odd,), frozenset({"tools"}))
    assert sent.tool_calls is None
    assert '"arguments": {"a": 1}' in sent.content
