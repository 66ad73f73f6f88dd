"""What a bot and a sandbox in Python are given: taken, or refused as a UsageError that names it."""

import math
from contextlib import suppress
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from stockade import Bot, Sandbox, StockadeError
from stockade.core.settings import RunSettings, fields
from tests.unit.api.test_bots import DONE, folder, own_places, script

__all__ = ["folder", "own_places"]

ODD: tuple[Any, ...] = (
    "", 0, -1, 10**30, math.nan, math.inf, [], ("x",), {}, {"a": 1}, object(), b"x", "x\0y", 1.5, True, "a" * 5000,
    Path("x"), "\udcff", [None], set(), lambda: 1,
)  # fmt: skip
RUN = ("name", "system_prompt", "model", "sandbox")
"""What is looked at only when a bot runs."""


@pytest.mark.parametrize("kind", [Bot, Sandbox])
def test_no_argument_is_answered_by_another_error_than_ours(kind: Any, folder: Path, tmp_path: Path) -> None:
    named: list[str] = [one.name for one in signature(kind).parameters.values() if one.kind is not one.VAR_KEYWORD]
    model = {"model": script(tmp_path, DONE)} if kind is Bot else {}
    for name in dict.fromkeys([*named, *(fields(RunSettings) if kind is Bot else ())]):
        for value in (None, *ODD):
            with suppress(StockadeError):
                made = kind(**{**model, name: value})
                if name in RUN and value in (0, "", -1):
                    made.run("x")


def test_nothing_is_said_by_none(folder: Path, tmp_path: Path) -> None:
    kinds = dict.fromkeys(("tools", "additional_tools", "hooks", "tool", "sandbox", "on_event", "system_prompt"))
    bot = Bot(model=script(tmp_path, DONE), folder=folder, **kinds)  # type: ignore[arg-type]
    assert bot.run("x").answer == "3 lines"
