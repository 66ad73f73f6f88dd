"""The bots that come with the program."""

from stockade.bots.browsing import BROWSING
from stockade.bots.others import BOSS, LOG_ANALYSIS
from stockade.bots.planner import PLANNER
from stockade.bots.shell import SHELL
from stockade.bots.spec import READING, WRITING, BotSpec

_ALL = (WRITING, READING, LOG_ANALYSIS, BROWSING, BOSS, PLANNER, SHELL)
BUILT_IN: dict[str, BotSpec] = {spec.name: spec for spec in _ALL}
CODER = "coder"
"""None of them: it has a loop of its own, and this name on record."""
