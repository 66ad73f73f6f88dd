"""The bots of ours that run the loop under the suite that a stranger's passes."""

from stockade.core.events import Autonomy
from stockade.loop.run_context import Bot
from stockade.plugins.planner.bot import PLANNER
from stockade.plugins.shell_bot.bot import ShellBot
from stockade.testing.conformance import BotConformance


class TestPlainLoop(BotConformance):
    def make_bot(self) -> Bot:
        return Bot()


class TestPlanner(BotConformance):
    def make_bot(self) -> Bot:
        return PLANNER.bot


class TestShellBot(BotConformance):
    first = BotConformance.first.model_copy(update={"autonomy": Autonomy()})

    def make_bot(self) -> Bot:
        return ShellBot()
