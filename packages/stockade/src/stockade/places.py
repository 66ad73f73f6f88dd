"""Where the state of runs is kept on this machine."""

from pathlib import Path

import platformdirs


def state_dir() -> Path:
    """`$XDG_STATE_HOME/stockade`."""
    return Path(platformdirs.user_state_dir("stockade", appauthor=False))


def run_dir(run_id: str) -> Path:
    """What belongs to one run."""
    return state_dir() / "runs" / run_id
