"""Files and folders: caches, a link, names, sorting into folders, what a copy lacks."""

from pathlib import Path

from bench.ability.checks import every, lines, only
from bench.ability.task import Task

_SOURCES = {
    "setup.py": "import shopkit\n",
    "shopkit/__init__.py": "",
    "shopkit/cart/__init__.py": "LIMIT = 20\n",
    "notes/pycache.txt": "why we see __pycache__ in the image\n",
}
_CACHES = {
    "__pycache__/setup.cpython-312.pyc": "0\n",
    "shopkit/__pycache__/__init__.cpython-312.pyc": "1\n",
    "shopkit/cart/__pycache__/__init__.cpython-312.pyc": "2\n",
}
_RELEASES = {
    "releases/2.4.0/app.txt": "two four\n",
    "releases/2.5.0/app.txt": "two five\n",
    "releases/2.5.1/app.txt": "two five one\n",
}
_SHARE = ("Q1 report final.txt", "budget.txt", "team photo.png", "minutes 12 May.md")
_CAMERA = ("IMG_20231224_180211.jpg", "IMG_20240817_101500.jpg", "IMG_20240902_070033.jpg", "IMG_20250101_000412.jpg")
_DATA = ("users.db", "index.bin", "2025/q1.csv", "2025/q2.csv", "2026/q1.csv", "2026/q2.csv")
_BACKED_UP = ("users.db", "2025/q1.csv", "2026/q1.csv", "2026/q2.csv", "index.old")


def _no_caches(folder: Path) -> bool:
    return not list(folder.rglob("__pycache__"))


def _points_at_the_new_one(folder: Path) -> bool:
    """An absolute link may be one of another place where the folder was mounted."""
    link, wanted = folder / "current", Path("releases/2.5.1")
    target = link.readlink()
    if target.is_absolute():
        return target.parts[-2:] == wanted.parts
    return link.resolve() == (folder / wanted).resolve()


def _all_are_there(folder: Path) -> bool:
    return all((folder / name).read_text() == words for name, words in _RELEASES.items())


def _has_missing(folder: Path) -> bool:
    found = [line.removeprefix("./").removeprefix("data/") for line in lines(folder / "missing.txt") if line]
    return sorted(found) == ["2025/q2.csv", "index.bin"]


TASKS = (
    Task(
        "files-caches", "files", 1,
        "Delete all the __pycache__ directories in this project, however deep they are. Don't touch anything else.",
        every(only(*_SOURCES), _no_caches),
        "find . -type d -name __pycache__ -prune -exec rm -r {} +",
        {**_SOURCES, **_CACHES},
    ),
    Task(
        "files-symlink", "files", 1,
        "We're rolling out 2.5.1. The symlink current still goes to releases/2.4.0, please make it point to"
        " releases/2.5.1. The old releases stay where they are.",
        every(_points_at_the_new_one, _all_are_there),
        "ln -sfn releases/2.5.1 current",
        _RELEASES,
        "ln -s releases/2.4.0 current",
    ),
    Task(
        "files-spaces", "files", 2,
        "Our sync job chokes on spaces in file names. For the files in the share folder, replace each space in the name"
        " with an underscore.",
        only(*(f"share/{name.replace(' ', '_')}" for name in _SHARE), "read me.txt"),
        'for f in share/*\\ *; do mv "$f" "${f// /_}"; done',
        {**{f"share/{name}": f"{name}\n" for name in _SHARE}, "read me.txt": "about share\n"},
    ),
    Task(
        "files-years", "files", 2,
        "Sort the photos in camera into one subfolder per year. The year is in the file name, so for example"
        " IMG_20240817_101500.jpg should end up in camera/2024.",
        only(*(f"camera/{name[4:8]}/{name}" for name in _CAMERA)),
        'cd camera; for f in IMG_*.jpg; do mkdir -p "${f:4:4}"; mv "$f" "${f:4:4}"; done',
        {f"camera/{name}": f"{name}\n" for name in _CAMERA},
    ),
    Task(
        "files-missing", "files", 2,
        "The last backup was interrupted. Compare data with backup, subfolders too, and tell me which files exist in"
        " data but not in backup. Put their paths into missing.txt, one per line.",
        _has_missing,
        "comm -23 <(cd data && find . -type f | sort) <(cd backup && find . -type f | sort) > missing.txt",
        {
            **{f"data/{name}": f"{name}\n" for name in _DATA},
            **{f"backup/{name}": f"{name}\n" for name in _BACKED_UP},
        },
    ),
)  # fmt: skip
