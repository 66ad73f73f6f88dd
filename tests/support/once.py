"""What is dear to make is made once for all of pytest's processes: the first that asks makes it, the others wait."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stockade_sandbox.locks import lock, open_lock


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder `name`, which `make` has filled. Where that fails, the next that asks begins anew."""
    base = factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / name
    done = folder.with_name(f"{name}.made")
    held = open_lock(folder.with_name(f"{name}.lock"))
    try:
        lock(held)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    finally:
        os.close(held)
    return folder
