"""What a package needs to add a part: ports, the data that they speak in, errors, and helpers (docs/extending.md).

A part is registered as an entry point, or passed to `stockade.Bot` as an object. `stockade.testing.conformance` has the
suites that it passes.
"""

from stockade.answers.calls import action_in, native_answer
from stockade.answers.lenient import whole
from stockade.answers.spelling import usage_of
from stockade.answers.tool_specs import spelled
from stockade.bots.spec import BotSpec
from stockade.core.actions import (
    Action,
    Answer,
    AskUser,
    CommandOutput,
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
from stockade.core.changes import FolderLayer
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
from stockade.core.policy import CopyRule, FolderRule, Limits, Network, Policy
from stockade.core.ports import (
    AnswerProtocol,
    Backend,
    ExecResult,
    Model,
    OnNetwork,
    OnProgress,
    OnText,
    Sandbox,
    Toolbox,
)
from stockade.core.tool_plan import ToolContext, ToolFile, ToolPlan, ToolRequest
from stockade.core.tools import Offered, ToolSpec
from stockade.loop.bot import Bot
from stockade.loop.ending import Ending
from stockade.loop.hooks import Accept, AddMessage, AddWords, EndRun, Hook, HookContext, Refuse, SendBack
from stockade.loop.run_context import RunContext
from stockade.models.resolve import ModelContext
from stockade.runtime.sandboxes import open_sandbox, reviewer, sandbox_on
from stockade.tools.function import FunctionTool, tool

__all__ = [
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
    "Ending",
    "ExecResult",
    "Finish",
    "FolderLayer",
    "FolderRule",
    "FunctionTool",
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
    "ReadFile",
    "Refuse",
    "RunContext",
    "Sampling",
    "Sandbox",
    "SandboxDied",
    "SandboxFailed",
    "SendBack",
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
    "sandbox_on",
    "spelled",
    "tool",
    "usage_of",
    "whole",
]
