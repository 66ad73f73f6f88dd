"""What a task wants of git and the repository has not: a commit, a tag, a branch. Git itself says so, inside."""

import re

from stockade.core.errors import ActionFailed
from stockade.core.ports import Sandbox
from stockade.loop.advice.said import INSTEAD, quoted

MAX_PATHS = 8
_TO_COMMIT = re.compile(
    r"(?:^|[.,;:!]\s+|\b(?:and|then|please|also|finally)\s+)commit\b(?![- ]?(?:id|hash|message))", re.I
)
_NOT_TO = re.compile(r"\b(?:not|never|without|don't|no)\s+(?:\w+\s+)?commit", re.I)
_MESSAGE = re.compile(r"\bmessage:?\s+(?P<quote>['\"]?)(?P<words>[A-Za-z0-9][\w ,.:!#-]{0,98}\w)(?P=quote)\s*\.?\s*$")
_TAG = re.compile(
    r"\btag (?:(?:it|this|that|the \w+) )?(?:(?:named|called|as|with) )?['\"]?(?P<name>v?\d(?:[\w.-]*\w)?)", re.I
)
_BRANCH = re.compile(
    r"\b(?:create|make|start|open|add)\b[^.;]{0,60}?"
    r"\b(?:branch (?:(?:named|called) )?['\"]?(?P<name>[A-Za-z0-9](?:[\w./-]*\w)?)"
    r"|(?:named|called) ['\"]?(?P<other>[A-Za-z0-9][\w./-]*\w))",
    re.I,
)
_TAKES_AWAY = re.compile(r"\b(?:delete|remove|rename|move|drop)\b", re.I)
_LOOK = """
git rev-parse --is-inside-work-tree > /dev/null 2>&1 || exit 1
[ -z "$2" ] || git rev-parse --verify -q "refs/$2" > /dev/null || echo "lacks"
[ "$(git log -1 --format=%ct 2> /dev/null || echo 0)" -ge "$1" ] || echo "old"
git status --porcelain --untracked-files=normal | head -n 20
"""


def _named(task: str) -> tuple[str, str, str]:
    """What the task wants to be there: its kind, its name and the command that makes it; all empty for nothing."""
    if _TAKES_AWAY.search(task):
        return "", "", ""
    if found := _TAG.search(task):
        return "tag", found["name"], f"git tag {found['name']}"
    found = _BRANCH.search(task) if re.search(r"\bbranch\b", task, re.I) else None
    name = (found["name"] or found["other"]) if found else ""
    return ("branch", name, f"git branch {name}") if name else ("", "", "")


def _wants_commit(task: str) -> bool:
    return _TO_COMMIT.search(task) is not None and not _NOT_TO.search(task)


async def lacking(task: str, started_at: float, sandbox: Sandbox) -> list[str]:
    """In words for the bot. `started_at` (seconds since 1970): what was committed before is none of its commits."""
    kind, name, way = _named(task)
    commit = _wants_commit(task)
    if not (kind or commit):
        return []
    ref = {"tag": f"tags/{name}", "branch": f"heads/{name}"}.get(kind, "")
    try:
        done = await sandbox.exec(["sh", "-c", _LOOK, "sh", str(int(started_at)), ref], timeout_s=5)
    except ActionFailed:
        return []
    if done.exit_code:
        return []
    lines = done.stdout.decode(errors="replace").splitlines()
    lacks, old = "lacks" in lines, "old" in lines
    changed = [line[3:] for line in lines if line not in ("lacks", "old")]
    found = [f"There is no {kind} {name} in the repository.{INSTEAD}{way}"] if lacks else []
    if commit and (changed or old):
        what = (
            f"{', '.join(map(quoted, changed[:MAX_PATHS]))} is not committed." if changed else "Nothing is committed."
        )
        found.append(f"{what}{_way(task, changed)}")
    return found


def _way(task: str, changed: list[str]) -> str:
    """The command, where the task says the message and the names need no quotes."""
    message = _MESSAGE.search(task.strip())
    if message is None or not changed or len(changed) > MAX_PATHS:
        return ""
    if not all(re.fullmatch(r"[\w./-]+", path) for path in changed):
        return ""
    return f"{INSTEAD}git add {' '.join(changed)} && git commit -m '{message['words']}'"
