"""A sandbox without a bot: commands of yours, sealed like a bot's.

python examples/sandbox_only.py
"""

from pathlib import Path

from stockade import Folder, Sandbox

with Sandbox(folder=Folder(Path(__file__).parent / "demo", "overlay"), memory="512M") as box:
    print(box.execute("wc -l < data.csv").output.strip(), "lines")
    print("status of a write outside:", box.execute("echo x > /etc/passwd").return_code)
    print("status when it takes too long:", box.execute("sleep 60", timeout=0.5).return_code)
    box.execute("sort data.csv > sorted.csv")
    print("written to the overlay:", [change.path for change in box.changes])
