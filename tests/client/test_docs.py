"""The example of docs/client.md does what the page says, with a real server."""

import re
import subprocess
import sys
from pathlib import Path

from tests.server.conftest import Stage

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


def test_the_example_runs(stage: Stage) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    variables = {"SERVER": stage.url, "STOCKADE_TOKEN": stage.token("page")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=stage.environment() | variables, cwd=stage.path, capture_output=True,
        text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True True 3 lines\n")
    assert "+3" in done.stdout
    assert (stage.demo / "count.txt").read_text() == "3\n"
