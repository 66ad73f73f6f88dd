"""A bot that answers questions about a folder, in which it can change nothing.

python examples/read_a_folder.py            # STOCKADE_MODEL=openai/gpt-5 for another model than the local one
"""

import os
from pathlib import Path

from stockade import ReadingBot

DEMO = Path(__file__).parent / "demo"

bot = ReadingBot(model=os.environ.get("STOCKADE_MODEL", "auto"), folder=DEMO)
result = bot.run("How many lines has data.csv?", max_iterations=8)
print(result.answer if result else f"no answer: {result.error}")
