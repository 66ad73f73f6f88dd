"""What a package needs to add a part: ports, the data that they speak in, errors, and helpers (docs/extending.md).

A part is registered as an entry point, or passed to `stockade.Bot` as an object. `stockade.testing.conformance` has the
suites that it passes, `stockade.extend.answers` what reads and writes an answer protocol. Our own plug-ins import
nothing of ours but these and `stockade.core`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stockade.answers.action_codec import usage_of
from stockade.answers.calls import action_in, native_answer
from stockade.answers.lenient import whole
from stockade.answers.tool_specs import spelled
from stockade.bots.model_profiles import FILES
from stockade.bots.spec import BotSpec
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
    AnswerHeldBack,
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
from stockade.extend.evals import TASK_HOME, EvalSet, EvalTask, data_of
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
from stockade.loop.observe import describe
from stockade.loop.run_context import Bot, Narrator, RunContext, Setup
from stockade.loop.state import CompletedStep
from stockade.models.settings import ModelContext
from stockade.tools.function import Functions, FunctionTool, tool
from stockade_sandbox.policy import CopyRule, FolderRule, Limits, Network, Policy
from stockade_sandbox.results import CommandOutput, FolderLayer

if TYPE_CHECKING:
    from stockade.runtime.sandboxes import open_sandbox, reviewer, sandbox_on

__all__ = [
    "FILES",
    "TASK_HOME",
    "Accept",
    "Action",
    "ActionFailed",
    "AddMessage",
    "AddWords",
    "Answer",
    "AnswerHeldBack",
    "AnswerProtocol",
    "AskUser",
    "Backend",
    "Bot",
    "BotSpec",
    "CommandOutput",
    "CompletedStep",
    "ContextExceeded",
    "CopyRule",
    "EditFile",
    "EndRun",
    "EndedByHook",
    "Ending",
    "EvalSet",
    "EvalTask",
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
    "Narrator",
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
    "data_of",
    "describe",
    "native_answer",
    "open_sandbox",
    "reviewer",
    "rounds",
    "sandbox_on",
    "spelled",
    "tool",
    "usage_of",
    "whole",
]


def __getattr__(name: str) -> Any:
    """What opens sandboxes lies above: it is imported when it is used."""
    if name not in ("open_sandbox", "reviewer", "sandbox_on"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("stockade.runtime.sandboxes"), name)
