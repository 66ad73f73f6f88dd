"""Git, in a repository with a person's name set: a message, what changed, an old version, one commit, a conflict."""

from bench.ability.checks import every, lists, prints, says, succeeds
from bench.ability.task import Task

_NEW = "git init -q -b main . && git config user.name Mika && git config user.email mika@example.net"
_FIRST = f"{_NEW} && git add -A && git commit -q -m 'Import the shop'"
_FILES = {
    "price.py": "def price(net):\n    return net * 1.19\n",
    "shop/cart.py": "ITEMS = []\n",
    "limits.ini": "max=10\n",
}
_RELEASED = (
    f"{_FIRST} && git tag v1.0 && echo 'ITEMS = {{}}' > shop/cart.py && echo 'COUPONS = 3' > shop/coupons.py"
    " && git add -A && git commit -q -m 'Add coupons'"
    " && printf 'def price(net):\\n    return net * 1.07\\n' > price.py && git commit -q -a -m 'Lower the tax'"
)
_ROUNDED = "def price(net):\n    return round(net * 1.19, 2)\n"
_DEV = (
    f"{_FIRST} && git switch -q -c dev && echo 'BETA = 1' > beta.py && git add -A && git commit -q -m 'Start the beta'"
    " && sed -i 's/net \\* 1.19/round(net * 1.19, 2)/' price.py && git commit -q -a -m 'Round prices to cents'"
    " && echo 'BETA = 2' > beta.py && git commit -q -a -m 'Go on with the beta' && git switch -q main"
)
_CONFLICT = (
    f"{_FIRST} && git switch -q -c tuning && echo 'max=50' > limits.ini && echo 'measured' > tuning.txt && git add -A"
    " && git commit -q -m 'Tune the limits' && git switch -q main && echo 'max=20' > limits.ini"
    " && git commit -q -a -m 'Raise the limit' && (git merge -q tuning || true)"
)

TASKS = (
    Task(
        "git-message", "git", 1,
        "There's a typo in the message of my last commit, it should be: Add login page. It's not pushed yet, so just"
        " change the message of that commit.",
        every(prints("git log --format=%s", "Add login page\nImport the shop"),
              prints("git show HEAD:login.html", "<form></form>")),
        "git commit -q --amend -m 'Add login page'",
        _FILES,
        f"{_FIRST} && echo '<form></form>' > login.html && git add -A && git commit -q -m 'Add lgoin page'",
    ),
    Task(
        "git-changed", "git", 1,
        "Which files have changed between the tag v1.0 and the current commit? Write their paths to changed.txt, one"
        " per line.",
        lists("changed.txt", "price.py", "shop/cart.py", "shop/coupons.py", in_order=False),
        "git diff --name-only v1.0 HEAD > changed.txt",
        _FILES,
        _RELEASED,
    ),
    Task(
        "git-old", "git", 1,
        "I want to compare price.py with how it was in v1.0. Save the version from the tag v1.0 as price_old.py, and"
        " leave price.py itself as it is now.",
        every(says("price_old.py", _FILES["price.py"]), says("price.py", _FILES["price.py"].replace("1.19", "1.07"))),
        "git show v1.0:price.py > price_old.py",
        _FILES,
        _RELEASED,
    ),
    Task(
        "git-pick", "git", 2,
        'The branch dev has a commit "Round prices to cents" that we need on main right now. Bring only that commit'
        " over to main (we are on main), the rest of dev is not ready.",
        every(prints("git show main:price.py", _ROUNDED), says("price.py", _ROUNDED),
              prints("git ls-tree -r --name-only main", "limits.ini\nprice.py\nshop/cart.py"),
              prints("git rev-list --count dev", "4"), prints("git branch --show-current", "main")),
        "git cherry-pick dev~1 > /dev/null",
        _FILES,
        _DEV,
    ),
    Task(
        "git-conflict", "git", 3,
        "I started merging the branch tuning into main and got a conflict in limits.ini. Take the value that tuning has"
        " there and finish the merge with a commit.",
        every(says("limits.ini", "max=50"), prints("git show main:limits.ini", "max=50"),
              prints("git show main:tuning.txt", "measured"), prints("git branch --no-merged main", ""),
              prints("git log --format=%s --no-merges main | sort",
                     "Import the shop\nRaise the limit\nTune the limits"),
              succeeds("! test -e .git/MERGE_HEAD")),
        "git checkout -q --theirs limits.ini && git add limits.ini && git commit -q --no-edit",
        _FILES,
        _CONFLICT,
    ),
)  # fmt: skip
