"""Git, in a repository with a person's name set, as on the machine of somebody who uses it."""

from bench.ability.checks import every, number, prints, says
from bench.ability.task import Task

_NEW = "git init -q -b main . && git config user.name Anna && git config user.email anna@example.com"
_FIRST = f"{_NEW} && git add -A && git commit -q -m 'First version'"
_FILES = {"app.py": "print('hello')\n", "config.ini": "[main]\nlevel=3\n"}
_HISTORY = _FIRST + (
    " && for n in 1 2 3 4 5; do echo $n >> log.txt; git add -A; "
    "if [ $n = 2 ] || [ $n = 4 ]; then who=Tom; else who=Zoe; fi; "
    'git -c user.name=$who -c user.email=$who@example.com commit -q -m "Step $n"; done'
)

TASKS = (
    Task(
        "git-commit", "git", 1,
        "Commit all changes and new files of this repository with the message: Add notes",
        every(prints("git log -1 --format=%s", "Add notes"), prints("git status --porcelain", ""),
              prints("git show HEAD:notes.txt", "remember")),
        "git add -A && git commit -q -m 'Add notes'",
        _FILES,
        f"{_FIRST} && echo remember > notes.txt && echo '# end' >> app.py",
    ),
    Task(
        "git-branch", "git", 1,
        "Create a new git branch named feature and switch to it.",
        prints("git branch --show-current", "feature"),
        "git switch -q -c feature",
        _FILES,
        _FIRST,
    ),
    Task(
        "git-count", "git", 1,
        "How many commits does this git repository have? Write only the number into commits.txt.",
        number("commits.txt", 6),
        "git rev-list --count HEAD > commits.txt",
        _FILES,
        _HISTORY,
    ),
    Task(
        "git-restore", "git", 2,
        "config.ini was changed by accident. Bring back the version of the last commit; leave the other files alone.",
        every(says("config.ini", "[main]\nlevel=3"), says("app.py", "print('hello')\n# new work")),
        "git checkout -q -- config.ini",
        _FILES,
        f"{_FIRST} && echo broken > config.ini && echo '# new work' >> app.py",
    ),
    Task(
        "git-ignore", "git", 2,
        "Make git ignore all .log files in this repository, and commit that with the message: Ignore logs",
        every(prints("git log -1 --format=%s", "Ignore logs"), prints("git check-ignore any.log", "any.log"),
              prints("git ls-files '*.log'", ""), prints("git ls-files .gitignore", ".gitignore")),
        "echo '*.log' > .gitignore && git add .gitignore && git commit -q -m 'Ignore logs'",
        _FILES,
        f"{_FIRST} && echo x > debug.log",
    ),
    Task(
        "git-author", "git", 3,
        "Which author has the most commits in this git repository? Write only the author's name into author.txt.",
        says("author.txt", "Zoe"),
        "git log --format=%an | sort | uniq -c | sort -nr | awk 'NR==1 {print $2}' > author.txt",
        _FILES,
        _HISTORY,
    ),
    Task(
        "git-tag", "git", 1,
        "Give the current commit of this repository the git tag v1.0.",
        prints("git tag --points-at HEAD", "v1.0"),
        "git tag v1.0",
        _FILES,
        _FIRST,
    ),
)  # fmt: skip
