"""Every hook of ours under the suite that a stranger's passes."""

from stockade.core.actions import Action
from stockade.core.events import Autonomy
from stockade.loop.builtin_hooks import Approval, BudgetLimits, Check, PlainWords, UnreadableAnswers
from stockade.loop.hooks import Hook
from stockade.loop.loop_detection import LoopDetection
from stockade.plugins.command_hooks import CommandHook
from stockade.plugins.shell_bot.bot import ShellBotRules
from stockade.plugins.small_models import SmallModels
from stockade.testing.conformance import HookConformance


class TestUnreadableAnswers(HookConformance):
    def make_hook(self) -> Hook:
        return UnreadableAnswers()


class TestBudgetLimits(HookConformance):
    def make_hook(self) -> Hook:
        return BudgetLimits()


class TestLoopDetection(HookConformance):
    def make_hook(self) -> Hook:
        return LoopDetection(repeats=1)


class TestPlainWords(HookConformance):
    def make_hook(self) -> Hook:
        return PlainWords()


class TestCheck(HookConformance):
    first = HookConformance.first.model_copy(update={"check": ("fails",)})

    def make_hook(self) -> Hook:
        return Check()


class Careful:
    """Implements core.ports.Approver."""

    async def judge(self, action: Action) -> str | None:
        return "not today" if action.tool == "shell" else None


class TestApproval(HookConformance):
    def make_hook(self) -> Hook:
        return Approval(Careful())


class TestSmallModels(HookConformance):
    def make_hook(self) -> Hook:
        return SmallModels()


class TestShellBotRules(HookConformance):
    def make_hook(self) -> Hook:
        return ShellBotRules(Autonomy(), "/workspace")


class TestCommandHook(HookConformance):
    def make_hook(self) -> Hook:
        return CommandHook("seen", "after_action", ("sh", "-c", """cat > /dev/null; echo '{"words": "seen"}'"""), 30.0)
