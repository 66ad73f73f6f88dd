"""Git, in a repository with a person's name set: out of the index, a branch at a tag, take one back, one of three."""

from bench.ability.checks import every, prints, says, succeeds, unchanged
from bench.ability.task import Task

_NEW = "git init -q -b main . && git config user.name Noor && git config user.email noor@example.net"
_FIRST = f"{_NEW} && git add -A && git commit -q -m 'Set up the service'"
_FILES = {"api.py": "ROUTES = ['/users']\n", "cache.py": "BACKEND = 'memory'\n", "README.md": "# Service\n"}
_SECRETS = "API_KEY=k-4471\n"
_STAGED = (
    f"{_FIRST} && echo \"ROUTES = ['/users', '/teams']\" > api.py && echo 'TEAMS = []' > teams.py"
    f" && printf '{_SECRETS.strip()}\\n' > secrets.env && git add -A"
)
_TAGGED = (
    f"{_FIRST} && echo 'v2' >> README.md && git commit -q -a -m 'Describe version 2' && git tag v2.0"
    " && echo 'BETA = True' > beta.py && git add -A && git commit -q -m 'Start with the beta features'"
)
_CACHED = (
    f"{_FIRST} && echo \"ROUTES = ['/users', '/teams']\" > api.py && git commit -q -a -m 'Add the teams route'"
    " && echo \"BACKEND = 'redis'\" > cache.py && git commit -q -a -m 'Switch to the new cache'"
    " && echo 'See the wiki.' >> README.md && git commit -q -a -m 'Link the wiki'"
)
_EXPORT = (
    f"{_FIRST} && echo 'See the wiki.' >> README.md && git commit -q -a -m 'Link the wiki'"
    " && echo 'FORMAT = 1' > export.py && git add -A && git commit -q -m 'wip export'"
    " && echo 'FORMAT = 2' > export.py && git commit -q -a -m 'fix export'"
    " && echo 'export: see export.py' > EXPORT.md && git add -A && git commit -q -m 'more export'"
)

TASKS = (
    Task(
        "git-unstage", "git", 1,
        "I ran git add -A and now secrets.env is staged as well. Unstage it, but don't delete the file. Everything else"
        " stays staged, I'll do the commit myself.",
        every(prints("git diff --cached --name-only", "api.py\nteams.py"), unchanged("secrets.env", _SECRETS),
              prints("git log --format=%s", "Set up the service")),
        "git restore --staged secrets.env",
        _FILES,
        _STAGED,
    ),
    Task(
        "git-hotfix", "git", 1,
        "We have to patch the released version. Create a branch hotfix-2.0.1 that starts at the tag v2.0 and check it"
        " out.",
        every(prints("git branch --show-current", "hotfix-2.0.1"),
              succeeds('test "$(git rev-parse hotfix-2.0.1)" = "$(git rev-parse v2.0^{commit})"'),
              prints("git log -1 --format=%s", "Describe version 2"), prints("git rev-list --count main", "3"),
              says("cache.py", _FILES["cache.py"]), succeeds("! test -e beta.py")),
        "git switch -q -c hotfix-2.0.1 v2.0",
        _FILES,
        _TAGGED,
    ),
    Task(
        "git-revert", "git", 2,
        'The commit "Switch to the new cache" causes trouble in production. It is already pushed, so please revert it'
        " with a new commit. What was committed after it has to stay.",
        every(prints("git show HEAD:cache.py", "BACKEND = 'memory'"), says("cache.py", "BACKEND = 'memory'"),
              says("README.md", "# Service\nSee the wiki."),
              prints("git show HEAD:README.md", "# Service\nSee the wiki."),
              prints("git show HEAD:api.py", "ROUTES = ['/users', '/teams']"), prints("git rev-list --count HEAD", "5"),
              prints("git log --skip=1 --format=%s", "Link the wiki\nSwitch to the new cache\nAdd the teams route\n"
                     "Set up the service"),
              prints("git branch --show-current", "main")),
        "git revert --no-edit HEAD~1 > /dev/null",
        _FILES,
        _CACHED,
    ),
    Task(
        "git-squash", "git", 3,
        "My last three commits are all about the export and not pushed yet. Squash them into one commit with the"
        ' message "Add export". The files must be the same as now in the end.',
        every(prints("git log --format=%s", "Add export\nLink the wiki\nSet up the service"),
              prints("git ls-tree -r --name-only HEAD", "EXPORT.md\nREADME.md\napi.py\ncache.py\nexport.py"),
              prints("git show HEAD:export.py HEAD:EXPORT.md", "FORMAT = 2\nexport: see export.py"),
              says("export.py", "FORMAT = 2"), says("EXPORT.md", "export: see export.py"),
              prints("git branch --show-current", "main")),
        "git reset -q --soft HEAD~3 && git commit -q -m 'Add export'",
        _FILES,
        _EXPORT,
    ),
)  # fmt: skip
