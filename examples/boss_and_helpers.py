"""A boss splits its task; each helper works in the same sandbox, and all of them on one budget.

python examples/boss_and_helpers.py
"""

import os
from pathlib import Path

from stockade import BossBot, Folder

boss = BossBot(model=os.environ.get("STOCKADE_MODEL", "auto"), folder=Folder(Path(__file__).parent / "demo"))
result = boss.run("Count the lines of data.csv and write the number into count.txt", max_iterations=30)
print(result.answer if result else f"no answer: {result.error}")
print([change.path for change in result.changes], "in", result.turns, "turns of the boss")
result.discard()
