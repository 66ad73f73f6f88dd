"""The bots that come with the program."""

from stockade.bots.browsing import BROWSING
from stockade.bots.others import BOSS, LOG_ANALYSIS
from stockade.bots.spec import READING, WRITING, BotSpec
from stockade.plugins.planner.bot import PLANNER
from stockade.plugins.shell_bot.bot import SHELL

_ALL = (WRITING, READING, LOG_ANALYSIS, BROWSING, BOSS, PLANNER, SHELL)
BUILT_IN: dict[str, BotSpec] = {spec.name: spec for spec in _ALL}
CODER = "coder"
"""None of them: it has a loop of its own, and this name on record."""
