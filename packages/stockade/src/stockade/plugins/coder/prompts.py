"""What the programmer is told. The system prompt and the task are the same for every question of a run: the server
reads them once.
"""

from collections.abc import Mapping, Sequence

from stockade.core.messages import Message
from stockade.plugins.coder.examples import Signature
from stockade.plugins.coder.report import FailedCheck, cut

MAX_TESTS_CHARS = 6000

_SYSTEM = """\
You write Python 3 programs. What you write is run at once. Answer with these sections and nothing else:
### Requirements
libraries from PyPI that the code needs, one a line, or none
### Code
```python
the whole program
```"""
_EXAMPLE = """
### Example
```python
a short use of the code that prints its result
```"""
_SHORT = "Leave out docstrings and comments."
_PLAN = (
    "Begin with ### Plan: how the result comes about, in two or three sentences. Then the other sections, and nothing"
    " behind them. Leave out docstrings."
)
_AGAIN = "Think about what is wrong, then answer with the sections again and the whole corrected program."


def system(*, wants_example: bool) -> str:
    """`wants_example`: there are no checks, so the program has to show by itself that it works."""
    return _SYSTEM + (_EXAMPLE if wants_example else "")


def brief(task: str, examples: Sequence[str], tests: str, signature: Signature | None) -> str:
    """The task with what else the program is checked by, which the person gave beside it."""
    parts = [task]
    if signature is not None and f"def {signature.name}" not in task:
        parts.append(f"The program must define: {signature.text}")
    if examples:
        parts.append("It must hold:\n" + "\n".join(examples))
    if tests:
        shown = tests if len(tests) <= MAX_TESTS_CHARS else f"{tests[:MAX_TESTS_CHARS]}\n# ... and more"
        parts.append(f"It must pass these tests, which are there already:\n```python\n{shown.strip()}\n```")
    return "\n\n".join(parts)


def opening(task: str, *, wants_example: bool) -> tuple[Message, ...]:
    """The beginning of every question: the task is always there."""
    return (
        Message(role="system", content=system(wants_example=wants_example)),
        Message(role="user", content=f"{task}\n\n{_SHORT}"),
    )


def anew(task: str, words: str, *, wants_example: bool) -> tuple[Message, ...]:
    """The task once more, without what was written for it; `words` tell what came of that."""
    return (
        Message(role="system", content=system(wants_example=wants_example)),
        Message(role="user", content=f"{task}\n\n{words}\n\n{_PLAN}"),
    )


def failed(words: str) -> str:
    """How programs failed that gave no values. The first line of `words`, the others are about one of them."""
    return f"Programs that were tried failed: {words.splitlines()[0]}"


def repair(words: str) -> str:
    """After an attempt that failed; `words` say how."""
    return f"{words}\n\n{_AGAIN}"


def cases(wrong: Mapping[str, Sequence[FailedCheck]]) -> str:
    """What programs gave for these calls."""
    lines = []
    for call, checks in wrong.items():
        gave = " or ".join(f"`{cut(check.got)}`" for check in checks)
        lines.append(f"Mind that `{cut(call)}` must give `{cut(checks[0].expected)}`, not {gave}, which was wrong.")
    return "\n".join(lines)
