"""Tables and the curve, of the problems that every shown arm has been run on."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def write_report(results: Path, target: Path) -> None:
    raise NotImplementedError
