"""A sandbox without a bot: commands of yours, sealed like a bot's.

python examples/sandbox_only.py
"""

from pathlib import Path

from stockade import Sandbox

with Sandbox(folder=Path(__file__).parent / "demo") as box:
    print(box.exec(shell="wc -l < data.csv").text.strip(), "lines")
    print("status of a write outside:", box.exec(shell="echo x > /etc/passwd").exit_code)
    print("status when it takes too long:", box.exec(["sleep", "60"], timeout=0.5).exit_code)
    box.exec(shell="sort data.csv > sorted.csv")
    print("written to the overlay:", [line[6:] for line in box.diff().splitlines() if line.startswith("+++ b/")])
