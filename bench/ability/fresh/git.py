"""Git, in a repository with a person's name set: rename, merge, look up, undo, search."""

from bench.ability.checks import every, prints, says
from bench.ability.task import Task

_NEW = "git init -q -b master . && git config user.name Ines && git config user.email ines@example.org"
_FILES = {"client.py": "import socket\n\nHOST = 'db.local'\n", "README": "A client.\n"}
_FIRST = f"{_NEW} && git add -A && git commit -q -m 'Start the client'"
_LINES = (
    ("PORT = 5432", "Set the port"),
    ("LIMIT = 100", "Limit the rows"),
    ("RETRIES = 3", "Try again after a lost connection"),
    ("VERBOSE = False", "Be quiet by default"),
)
_STEPS = " && ".join((_FIRST, *(f"echo '{line}' >> client.py && git commit -q -a -m '{why}'" for line, why in _LINES)))
_LAST = "3c23d1af6e6e23002616e9b20a6aa6b406f35a6e"

TASKS = (
    Task(
        "git-rename", "git", 1,
        "The branch here is still called master. Rename it to main.",
        every(prints("git branch --show-current", "main"), prints("git branch --format='%(refname:short)'", "main"),
              prints("git log --format=%s", "Start the client")),
        "git branch -m main",
        _FILES,
        _FIRST,
    ),
    Task(
        "git-merge", "git", 1,
        "The work on the branch docs is finished. Merge it into master, the branch we are on.",
        every(prints("git branch --show-current", "master"), prints("git show master:usage.txt", "python3 client.py"),
              prints("git show master:README", "A small client."), prints("git branch --no-merged master", "")),
        "git merge -q --no-edit docs",
        _FILES,
        f"{_FIRST} && git switch -q -c docs && echo 'python3 client.py' > usage.txt && git add -A"
        " && git commit -q -m 'Say how to use it' && git switch -q master && echo 'A small client.' > README"
        " && git commit -q -a -m 'Better words'",
    ),
    Task(
        "git-hash", "git", 1,
        "For the release notes I need the full hash of the latest commit in this repository. Put it into commit.txt.",
        says("commit.txt", _LAST),
        "git rev-parse HEAD > commit.txt",
        _FILES,
        _STEPS,
    ),
    Task(
        "git-undo", "git", 2,
        "I committed too early. Take back the last commit, so that it is gone from the history, but keep its changes"
        " in my files.",
        every(prints("git log --format=%s", "Start the client"), says("README", "A client.\nNot finished"),
              says("draft.txt", "more to come")),
        "git reset -q --soft HEAD~1",
        _FILES,
        f"{_FIRST} && echo 'Not finished' >> README && echo 'more to come' > draft.txt && git add -A"
        " && git commit -q -m 'Too early'",
    ),
    Task(
        "git-search", "git", 3,
        "Which commit of this repository brought the word RETRIES into client.py? I need its commit message, and only"
        " that, in found.txt.",
        says("found.txt", "Try again after a lost connection"),
        "git log -S RETRIES --format=%s -- client.py > found.txt",
        _FILES,
        _STEPS,
    ),
)  # fmt: skip
