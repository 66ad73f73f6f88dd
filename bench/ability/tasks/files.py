"""Files and folders: find, count, rename, move, copy, delete."""

from pathlib import Path

from bench.ability.checks import absent, every, exists, number, only, says, text
from bench.ability.task import Task

_KEPT = {"report.txt": "all is well\n", "data/one.csv": "a\n1\n", "data/old/two.csv": "b\n2\n"}


def _are_executable(folder: Path) -> bool:
    scripts = folder / "scripts"
    return (
        all((scripts / name).stat().st_mode & 0o100 for name in ("build.sh", "deploy.sh", "test.sh"))
        and not (scripts / "notes.txt").stat().st_mode & 0o100
    )


def _are_backed_up(folder: Path) -> bool:
    return all(
        text(folder / "etc" / f"{name}.conf.bak") == text(folder / "etc" / f"{name}.conf") == f"name={name}"
        for name in ("app", "db", "web")
    )


TASKS = (
    Task(
        "files-make", "files", 1,
        "Create the folders src, tests and docs, each with an empty file named .gitkeep in it.",
        only("src/.gitkeep", "tests/.gitkeep", "docs/.gitkeep"),
        "mkdir src tests docs; touch {src,tests,docs}/.gitkeep",
    ),
    Task(
        "files-count", "files", 1,
        "How many .py files are there in this folder, all subfolders included? Write the number into count.txt.",
        number("count.txt", 5),
        "find . -name '*.py' | wc -l > count.txt",
        dict.fromkeys(("main.py", "lib/a.py", "lib/b.py", "lib/deep/c.py", "test_py.txt", "tests/d.py"), "x = 1\n"),
    ),
    Task(
        "files-rename", "files", 2,
        "Rename all files that end in .jpeg so that they end in .jpg instead.",
        only("beach.jpg", "my cat.jpg", "tree.jpg", "notes.txt"),
        'for f in *.jpeg; do mv "$f" "${f%.jpeg}.jpg"; done',
        {"beach.jpeg": "1", "my cat.jpeg": "2", "tree.jpeg": "3", "notes.txt": "photos\n"},
    ),
    Task(
        "files-executable", "files", 1,
        "Make all the .sh files in the folder scripts executable.",
        _are_executable,
        "chmod +x scripts/*.sh",
        dict.fromkeys(
            ("scripts/build.sh", "scripts/deploy.sh", "scripts/test.sh", "scripts/notes.txt"), "#!/bin/sh\necho ok\n"
        ),
    ),
    Task(
        "files-empty", "files", 2,
        "Delete every empty file in this folder and in its subfolders. Keep all other files.",
        every(exists(*_KEPT), absent("empty.txt", "data/none.csv", "data/old/nothing.log")),
        "find . -type f -empty -delete",
        {**_KEPT, "empty.txt": "", "data/none.csv": "", "data/old/nothing.log": ""},
    ),
    Task(
        "files-largest", "files", 2,
        "Find the largest file in the folder data and write its name, without the folder, into largest.txt.",
        says("largest.txt", "march.bin"),
        "ls -S data | head -n 1 > largest.txt",
        {"data/january.bin": "x" * 300, "data/february.bin": "x" * 4000, "data/march.bin": "x" * 25000},
    ),
    Task(
        "files-backup", "files", 2,
        "For every .conf file in the folder etc make a copy next to it with .bak added to the name, like app.conf.bak.",
        _are_backed_up,
        "for f in etc/*.conf; do cp $f $f.bak; done",
        {f"etc/{name}.conf": f"name={name}\n" for name in ("app", "db", "web")} | {"etc/readme.txt": "hello\n"},
    ),
)  # fmt: skip
