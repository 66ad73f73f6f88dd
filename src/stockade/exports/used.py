"""What a bot has used, for every export."""

from collections.abc import Sequence

from stockade.core.events import HistoryFolded, ModelAnswered, RunEvent, RunStarted
from stockade.core.messages import Usage


def used(events: Sequence[RunEvent]) -> Usage:
    """By this bot itself, before its first turn and to fold its history too; its helpers have records of their own."""
    total = Usage()
    for event in events:
        match event:
            case RunStarted():
                total += event.used
            case ModelAnswered():
                total += event.answer.usage
            case HistoryFolded():
                total += event.usage
            case _:
                pass
    return total
