"""What a bot asks the user at the terminal while it works, and what its rules ask about its actions."""

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from stockade.approval.approver import Question, Reply, RulesApprover
from stockade.approval.authorise import Authoriser
from stockade.cli.authorising import whole
from stockade.cli.safe import one_line, safe_text
from stockade.cli.typed import typed
from stockade.loop.parts import Parts
from stockade.loop.pause import UserPrompt

CHOICE = "[o]nce / [r]un: as long as this run lasts / [a]lways: this bot in this folder / [n]o / or words for the bot: "
ANSWER = "your answer (empty: none): "


@dataclass(frozen=True, slots=True)
class Terminal:
    """Asks on `console`; `quiet` ends what moves there."""

    console: Console
    quiet: Callable[[], None]

    def attach(self, parts: Parts) -> None:
        """From now on this user is asked."""
        if isinstance(parts.asker, UserPrompt):
            parts.asker.answer = self.answer
        rules = parts.approver.rules if isinstance(parts.approver, Authoriser) else parts.approver
        if isinstance(rules, RulesApprover):
            rules.ask = self.approve

    async def answer(self, question: str) -> str | None:
        """The user's answer to a bot; None for an empty line and at the end of input."""
        self.quiet()
        self._line("The bot asks:", "bold yellow")
        self._line(safe_text(question), "")
        return await typed(ANSWER, fresh=True) or None

    async def approve(self, question: Question) -> Reply:
        """What is not clearly a yes is a no; its words go to the bot."""
        self.quiet()
        self._line("May the bot do this?", "bold yellow")
        self._line(safe_text(whole(question.action)), "bold")
        for one in question.judgements:
            if one.decision != "allow":
                self._line(f"  {one_line(one.text)}: {one_line(one.reason)}" if one.text else f"  {one.reason}", "dim")
        match line := await typed(CHOICE, fresh=True):
            case "o" | "once" | "y" | "yes":
                return Reply(allow="once")
            case "r" | "run":
                return Reply(allow="run")
            case "a" | "always":
                return Reply(allow="always")
            case None | "" | "n" | "no":
                return Reply()
            case _:
                return Reply(words=line)

    def _line(self, words: str, style: str) -> None:
        self.console.print(Text(words, style), soft_wrap=True)
