"""A bot that works in a folder; nothing reaches the folder before you have seen it.

python examples/write_with_review.py
"""

import os
import shutil
import tempfile
from pathlib import Path

from stockade import Folder, WritingBot

with tempfile.TemporaryDirectory() as place:
    work = Path(shutil.copytree(Path(__file__).parent / "demo", Path(place, "demo")))
    bot = WritingBot(model=os.environ.get("STOCKADE_MODEL", "auto"), folder=Folder(work, "overlay"))
    result = bot.run("Write the number of lines of data.csv into count.txt", timeout=600, max_iterations=20)
    print(result.diff)
    if result:
        print("applied:", *result.apply())
    else:
        print("thrown away:", result.error)
        result.discard()
