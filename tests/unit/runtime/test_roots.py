"""Folders that a client names."""

from pathlib import Path

import pytest

from stockade.core.errors import UsageError
from stockade.runtime.roots import Roots


@pytest.mark.parametrize("name", ["loop", "loop/x", "~nosuch/x", "a" * 300, "nothing"])
def test_a_name_that_leads_nowhere_is_no_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UsageError, match="there is no folder"):
        Roots.of([str(tmp_path)]).allowed(name, "overlay")
    with pytest.raises(UsageError, match="there is no such folder"):
        Roots.of([str(tmp_path / name)])
