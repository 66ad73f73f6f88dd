"""In a process of its own: what may take for ever of a text that a bot wrote, and would hold every thread of this one
meanwhile, as regular expressions do.
"""

import json
import resource
import subprocess
import sys
from typing import Any

_MOST_CPU_S = 5


def told(module: str, asked: object, patience_s: float) -> list[Any]:
    """What `python -m module` says of `asked`, a value of JSON in each line: those that came in time."""
    command = [sys.executable, "-P", "-m", module]
    data = json.dumps(asked).encode()
    try:
        said = subprocess.run(command, input=data, capture_output=True, timeout=patience_s, cwd="/", check=False).stdout
    except subprocess.TimeoutExpired as late:
        said = late.stdout or b""
    except OSError:  # no process more is to be had
        said = b""
    return [json.loads(line) for line in said.split(b"\n")[:-1]]  # the last may be cut off


def given() -> Any:
    """In that process."""
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_CPU_S, _MOST_CPU_S))  # also where nobody is there to end it
    return json.load(sys.stdin)


def tell(value: object) -> None:
    """In that process."""
    print(json.dumps(value), flush=True)
