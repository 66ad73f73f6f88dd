"""A tool of your own: what installs it, what proves that it is there, and what the bot is told of it.

python examples/own_tool.py
"""

import os

from stockade import ReadingBot, ToolDefinition

SHOUT = ToolDefinition(
    name="shout",
    installation_command="mkdir -p /usr/local/bin && printf '#!/bin/sh\\necho \"$*\" | tr a-z A-Z\\n'"
    " > /usr/local/bin/shout && chmod +x /usr/local/bin/shout",
    verification_command="shout ok | grep -x OK",
    usage_instructions="shout WORDS...   says the words in capitals",
    hosts=(),
)

bot = ReadingBot(model=os.environ.get("STOCKADE_MODEL", "auto"), additional_tools=[SHOUT])
result = bot.run("Say hello with the tool shout, and answer with what it printed.")
print(result.answer if result else f"no answer: {result.error}")
