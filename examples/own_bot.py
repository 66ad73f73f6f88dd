"""A bot of your own: a role, a permission, a check that decides whether it has succeeded.

python examples/own_bot.py
"""

import os
import tempfile
from pathlib import Path

from stockade import Bot

with tempfile.TemporaryDirectory() as place:
    Path(place, "calc.py").write_text("def add(a, b):\n    return a - b\n")
    bot = Bot(
        name="fixer",
        type="CUSTOM",
        permission="READ_WRITE",
        model=os.environ.get("STOCKADE_MODEL", "auto"),
        system_prompt="You mend Python programs in {workdir} with a bash shell. When the program is right, finish.",
        folder_to_mount=place,
    )
    check = "python3 -B -c 'from calc import add; assert add(2, 3) == 5'"
    result = bot.run("add() of calc.py gives wrong sums. Mend it.", check=check)
    print("verified" if result.verified else "not verified", [change.path for change in result.changes])
    result.discard()
