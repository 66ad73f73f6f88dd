"""What a person sees of an action before they authorise it."""

import io

import pytest
from rich.console import Console

from stockade.approval.approver import whole
from stockade.cli.ui.prompts import is_short
from stockade.cli.ui.render import Renderer
from stockade.core.actions import Action, EditFile, Shell, Step, ToolCall, WriteFile
from stockade.core.events import ActionStarted

HIDDEN = "rm-the-hidden-thing"
FILL = [f"line {number}" for number in range(60)]


def seen(action: Action) -> str:
    """As the terminal shows it when it begins."""
    out = io.StringIO()
    Renderer(Console(file=out, width=200, color_system=None)).event(
        ActionStarted(at=0, turn=1, step=0, action=Step(action=action))
    )
    return out.getvalue()


@pytest.mark.parametrize(
    "action",
    [
        Shell(command="\n".join([*FILL[:35], HIDDEN, *FILL])),
        Shell(command="echo " + "x" * 3990 + HIDDEN + "x" * 9000),
        WriteFile(path="a", content="\n".join([*FILL[:35], HIDDEN, *FILL])),
        WriteFile(path="a", content="\n".join(["x" * 3000] * 9 + [HIDDEN])),
        WriteFile(path=f"a\n{HIDDEN}", content="x"),
        EditFile(path="a", old="x", new="\n".join([*FILL[:35], HIDDEN, *FILL])),
        EditFile(path="a", old="\n".join(FILL), new=HIDDEN),
        ToolCall(name="t", arguments={"a": "x" * 1900, "b": HIDDEN}),
    ],
    ids=lambda action: action.tool,
)
def test_what_is_not_shown_whole_is_shown_again(action: Action) -> None:
    assert not is_short(action)
    assert HIDDEN in whole(action)


@pytest.mark.parametrize(
    "action",
    [
        Shell(command="\n".join([*FILL[:20], HIDDEN])),
        WriteFile(path="a b", content=f"x\n{HIDDEN}\n"),
        EditFile(path="a", old="x", new=HIDDEN),
        ToolCall(name="t", arguments={"a": "x" * 1000, "b": HIDDEN}),
    ],
    ids=lambda action: action.tool,
)
def test_what_is_short_is_seen_whole_at_once(action: Action) -> None:
    assert is_short(action)
    assert HIDDEN in seen(action)
