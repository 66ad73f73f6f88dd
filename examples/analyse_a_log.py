"""Why did it fail? The log is copied in, the code can be read, and what the user adds is data, not orders.

python examples/analyse_a_log.py
"""

import os
import tempfile
from pathlib import Path

from stockade import LogAnalysisBot

with tempfile.TemporaryDirectory() as place:
    log = Path(place, "build.log")
    log.write_text("compiling a.c\ncompiling b.c\nb.c:7: error: 'count' undeclared\nmake: *** [b.o] Error 1\n")
    bot = LogAnalysisBot(model=os.environ.get("STOCKADE_MODEL", "auto"))
    result = bot.run(str(log), user_prompt="It worked yesterday.")
print(result.answer if result else f"no answer: {result.error}")
