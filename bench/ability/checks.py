"""Checks as small functions, put together by the tasks. White space at the ends of lines and files never decides."""

import csv
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.ability.task import Check, bash


def text(path: Path) -> str:
    """Content without the space at its end; "" for what is not there."""
    return path.read_text(errors="replace").strip() if path.is_file() else ""


def lines(path: Path) -> list[str]:
    return [line.strip() for line in text(path).splitlines()]


def names(folder: Path) -> set[str]:
    """Every file below `folder`, as paths relative to it; what git keeps for itself is left out."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    return {str(path) for path in found if ".git" not in path.parts}


def says(name: str, wanted: str) -> Check:
    """The file holds exactly this."""
    return lambda folder: text(folder / name) == wanted.strip()


def lists(name: str, *wanted: str, in_order: bool = True) -> Check:
    """The file has exactly these lines; empty ones do not count."""

    def check(folder: Path) -> bool:
        found = [line for line in lines(folder / name) if line]
        return found == list(wanted) if in_order else sorted(found) == sorted(wanted)

    return check


def number(name: str, wanted: float) -> Check:
    """The file holds this number and nothing else."""
    return lambda folder: abs(float(text(folder / name)) - wanted) < 0.005


def exists(*wanted: str) -> Check:
    return lambda folder: all((folder / name).is_file() for name in wanted)


def absent(*unwanted: str) -> Check:
    return lambda folder: not any((folder / name).exists() for name in unwanted)


def only(*wanted: str) -> Check:
    """The folder has exactly these files, in all its subfolders."""
    return lambda folder: names(folder) == set(wanted)


def table(name: str, *rows: Sequence[str], in_order: bool = True) -> Check:
    """A CSV file of exactly these rows; how it quotes does not matter. The first row is its header."""

    def check(folder: Path) -> bool:
        read = list(csv.reader(io.StringIO(text(folder / name))))
        found = [tuple(cell.strip() for cell in row) for row in read if row]
        header, body = tuple(rows[0]), [tuple(row) for row in rows[1:]]
        return found[:1] == [header] and (found[1:] == body if in_order else sorted(found[1:]) == sorted(body))

    return check


def holds_json(name: str, wanted: Any) -> Check:
    """A JSON file of this value, however it is laid out."""
    return lambda folder: bool(json.loads(text(folder / name)) == wanted)


def pairs(name: str, wanted: Mapping[str, int]) -> Check:
    """Lines of a name and a number, in any order, with any signs between the two."""

    def check(folder: Path) -> bool:
        found = {}
        for line in lines(folder / name):
            words = line.replace(":", " ").replace(",", " ").replace("=", " ").split()
            if words:
                key, count = sorted(words, key=str.isdigit)
                found[key] = int(count)
        return found == dict(wanted)

    return check


def packed(name: str, *wanted: str) -> Check:
    """A tar or zip archive of exactly these files; a leading ./ does not matter."""

    def check(folder: Path) -> bool:
        path = folder / name
        if not path.is_file():
            return False
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                found = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
        elif tarfile.is_tarfile(path):
            with tarfile.open(path) as archive:
                found = [entry.name for entry in archive.getmembers() if entry.isfile()]
        else:
            return False
        return sorted(entry.removeprefix("./") for entry in found) == sorted(wanted)

    return check


def prints(command: str, wanted: str) -> Check:
    """A command in the folder succeeds and prints exactly this."""

    def check(folder: Path) -> bool:
        done = bash(command, folder)
        return done.returncode == 0 and done.stdout.strip() == wanted.strip()

    return check


def succeeds(command: str) -> Check:
    return lambda folder: bash(command, folder).returncode == 0


def unchanged(name: str, content: str) -> Check:
    """The file is as it was: for tasks that must leave it alone."""
    digest = hashlib.sha256(content.encode()).digest()
    return lambda folder: hashlib.sha256((folder / name).read_bytes()).digest() == digest


def every(*checks: Check) -> Check:
    return lambda folder: all(check(folder) for check in checks)
