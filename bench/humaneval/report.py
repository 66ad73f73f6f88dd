"""Tables and the curve, of the problems that every shown arm has been run on."""

from pathlib import Path


def write_report(results: Path, target: Path) -> None:
    raise NotImplementedError
