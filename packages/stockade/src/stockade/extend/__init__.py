"""What a package needs to add a part: ports, the data that they speak in, errors, and helpers (docs/extending.md).

A part is registered as an entry point, or passed to `stockade.Bot` as an object. `stockade.testing.conformance` has the
suites that it passes, `stockade.extend.answers` what reads and writes an answer protocol. Our own plug-ins import
nothing of ours but these and `stockade.core`. What lies above the core is imported when it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stockade.core.actions import (
    Action,
    Answer,
    AskUser,
    EditFile,
    Finish,
    Observation,
    ReadFile,
    Shell,
    Step,
    SubTask,
    ToolCall,
    ToolResult,
    WriteFile,
)
from stockade.core.errors import (
    ActionFailed,
    ContextExceeded,
    ModelOverloaded,
    ModelUnavailable,
    PolicyNotEnforceable,
    SandboxDied,
    SandboxFailed,
    StockadeError,
    UnreadableAnswer,
    UsageError,
)
from stockade.core.messages import Message, ModelAnswer, ModelInfo, ModelRequest, Sampling, Usage
from stockade.core.ports import (
    AnswerProtocol,
    Backend,
    ExecResult,
    Model,
    OnNetwork,
    OnProgress,
    OnText,
    Program,
    Programs,
    Sandbox,
    Toolbox,
)
from stockade.core.tool_plan import ToolContext, ToolFile, ToolPlan, ToolRequest
from stockade.core.tools import Offered, ToolSpec
from stockade_sandbox.policy import CopyRule, FolderRule, Limits, Network, Policy
from stockade_sandbox.results import CommandOutput, FolderLayer

if TYPE_CHECKING:
    from stockade.answers.action_codec import usage_of
    from stockade.answers.calls import action_in, native_answer
    from stockade.answers.lenient import whole
    from stockade.answers.tool_specs import spelled
    from stockade.bots.model_profiles import FILES
    from stockade.bots.spec import BotSpec
    from stockade.loop.builtin_hooks import DRY, warmer
    from stockade.loop.ending import Ending
    from stockade.loop.hooks import (
        Accept,
        AddMessage,
        AddWords,
        EndedByHook,
        EndRun,
        Hook,
        HookContext,
        Refuse,
        SendBack,
    )
    from stockade.loop.loop_detection import rounds
    from stockade.loop.run_context import Bot, RunContext, Setup
    from stockade.models.settings import ModelContext
    from stockade.runtime.sandboxes import open_sandbox, reviewer, sandbox_on
    from stockade.tools.function import Functions, FunctionTool, tool

_WHERE = {
    "Accept": "loop.hooks",
    "AddMessage": "loop.hooks",
    "AddWords": "loop.hooks",
    "Bot": "loop.run_context",
    "BotSpec": "bots.spec",
    "DRY": "loop.builtin_hooks",
    "EndRun": "loop.hooks",
    "EndedByHook": "loop.hooks",
    "Ending": "loop.ending",
    "FILES": "bots.model_profiles",
    "FunctionTool": "tools.function",
    "Functions": "tools.function",
    "Hook": "loop.hooks",
    "HookContext": "loop.hooks",
    "ModelContext": "models.settings",
    "Refuse": "loop.hooks",
    "RunContext": "loop.run_context",
    "SendBack": "loop.hooks",
    "Setup": "loop.run_context",
    "action_in": "answers.calls",
    "native_answer": "answers.calls",
    "open_sandbox": "runtime.sandboxes",
    "reviewer": "runtime.sandboxes",
    "rounds": "loop.loop_detection",
    "sandbox_on": "runtime.sandboxes",
    "spelled": "answers.tool_specs",
    "tool": "tools.function",
    "usage_of": "answers.action_codec",
    "warmer": "loop.builtin_hooks",
    "whole": "answers.lenient",
}
__all__ = [
    "DRY",
    "FILES",
    "Accept",
    "Action",
    "ActionFailed",
    "AddMessage",
    "AddWords",
    "Answer",
    "AnswerProtocol",
    "AskUser",
    "Backend",
    "Bot",
    "BotSpec",
    "CommandOutput",
    "ContextExceeded",
    "CopyRule",
    "EditFile",
    "EndRun",
    "EndedByHook",
    "Ending",
    "ExecResult",
    "Finish",
    "FolderLayer",
    "FolderRule",
    "FunctionTool",
    "Functions",
    "Hook",
    "HookContext",
    "Limits",
    "Message",
    "Model",
    "ModelAnswer",
    "ModelContext",
    "ModelInfo",
    "ModelOverloaded",
    "ModelRequest",
    "ModelUnavailable",
    "Network",
    "Observation",
    "Offered",
    "OnNetwork",
    "OnProgress",
    "OnText",
    "Policy",
    "PolicyNotEnforceable",
    "Program",
    "Programs",
    "ReadFile",
    "Refuse",
    "RunContext",
    "Sampling",
    "Sandbox",
    "SandboxDied",
    "SandboxFailed",
    "SendBack",
    "Setup",
    "Shell",
    "Step",
    "StockadeError",
    "SubTask",
    "ToolCall",
    "ToolContext",
    "ToolFile",
    "ToolPlan",
    "ToolRequest",
    "ToolResult",
    "ToolSpec",
    "Toolbox",
    "UnreadableAnswer",
    "Usage",
    "UsageError",
    "WriteFile",
    "action_in",
    "native_answer",
    "open_sandbox",
    "reviewer",
    "rounds",
    "sandbox_on",
    "spelled",
    "tool",
    "usage_of",
    "warmer",
    "whole",
]


def __getattr__(name: str) -> Any:
    """A name from above the core."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    result = getattr(import_module(f"stockade.{_WHERE[name]}"), name)
    globals()[name] = result
    return result
