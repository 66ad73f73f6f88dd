"""What the programmer is asked next: the messages and the sampling, from what failed so far. Pure functions.

The system prompt and the task are the same for every question of a run: the server reads them once. A program that does
not run is shown again once, with the error: that is a repair in a dialogue. One that runs and gives wrong values is not
shown: a small model copies it, greedy or warm (docs/coder.md). The task is asked again with the values that must come
and with a plan before the code, and drawn warm.
"""

from collections.abc import Mapping, Sequence

from stockade.core.messages import Message, Sampling
from stockade.plugins.coder.program import Signature
from stockade.plugins.coder.work import Attempt, Explain, FailedCheck, Plan, cut

MAX_TESTS_CHARS = 6000
MAX_STDIN_CHARS = 500
FRESH_TEMPERATURE = 0.8
MAX_CASES = 3
_ROUND_SEEDS = 1000

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


def brief(task: str, examples: Sequence[str], tests: str, signature: Signature | None, stdin: str = "") -> str:
    """The task with what else the program is checked by, which the user gave beside it."""
    parts = [task]
    if signature is not None and f"def {signature.name}" not in task:
        parts.append(f"The program must define: {signature.text}")
    if examples:
        parts.append("It must hold:\n" + "\n".join(examples))
    if tests:
        shown = tests if len(tests) <= MAX_TESTS_CHARS else f"{tests[:MAX_TESTS_CHARS]}\n# ... and more"
        parts.append(f"It must pass these tests, which are there already:\n```python\n{shown.strip()}\n```")
    if stdin:
        shown = stdin if len(stdin) <= MAX_STDIN_CHARS else f"{stdin[:MAX_STDIN_CHARS]}\n... and more"
        parts.append(f"Its standard input is:\n```\n{shown.strip()}\n```")
    return "\n\n".join(parts)


def opening(task: str, *, wants_example: bool) -> tuple[Message, ...]:
    """The beginning of every question: the task is always there."""
    return (
        Message(role="system", content=system(wants_example=wants_example)),
        Message(role="user", content=f"{task}\n\n{_SHORT}"),
    )


def cases(wrong: Mapping[str, Sequence[FailedCheck]]) -> str:
    """What programs gave for these calls."""
    lines = []
    for call, checks in wrong.items():
        gave = " or ".join(f"`{cut(check.got)}`" for check in checks)
        lines.append(f"Mind that `{cut(call)}` must give `{cut(checks[0].expected)}`, not {gave}, which was wrong.")
    return "\n".join(lines)


def is_rewrite(streak: Sequence[Attempt], plan: Plan) -> bool:
    """Whether the program is written anew, told what came of others, in place of being shown again."""
    programs = _programs(streak)
    return plan.rewrite and bool(programs) and (len(programs) > 1 or _gave_wrong(programs[-1]))


def _gave_wrong(attempt: Attempt) -> bool:
    """Whether it gave other values than it should."""
    return any(check.expected for check in attempt.verdict.wrong)


def _programs(streak: Sequence[Attempt]) -> list[Attempt]:
    """Without answers that held none: told that its form was wrong, a small model answers with that."""
    return [attempt for attempt in streak if attempt.code]


def told(streak: Sequence[Attempt], plan: Plan, explain: Explain) -> str:
    """What the model is told of what failed, whether the program is shown or not."""
    if not is_rewrite(streak, plan):
        return explain(streak[-1])
    wrong = wrong_values(streak)
    last = _programs(streak)[-1].verdict.words.splitlines()[0]
    return cases(wrong) if wrong else f"Programs that were tried failed: {last}"


def conversation(
    task: str,
    words: Sequence[tuple[int, str]],
    streak: Sequence[Attempt],
    plan: Plan,
    explain: Explain,
    *,
    wants_example: bool,
) -> tuple[Message, ...]:
    """`task`: with all that belongs to it. `words`: the user's, with the turn they were said before. `streak`: what was
    tried since the last fresh start. In a dialogue what was said later stands later: the prompt only grows.
    """
    programs, anew = _programs(streak), is_rewrite(streak, plan)
    first = programs[0].number if programs and not anew else None
    front = "\n\n".join([task, *(text for turn, text in words if first is None or turn <= first)])
    if anew:
        return (
            Message(role="system", content=system(wants_example=wants_example)),
            Message(role="user", content=f"{front}\n\n{told(streak, plan, explain)}\n\n{_PLAN}"),
        )
    messages = list(opening(front, wants_example=wants_example))
    ends: list[int | None] = [program.number for program in programs[1:]]
    for attempt, end in zip(programs, [*ends, None], strict=False):
        later = [text for turn, text in words if attempt.number < turn and (end is None or turn <= end)]
        messages.append(Message(role="assistant", content=attempt.answer))
        messages.append(Message(role="user", content="\n\n".join([explain(attempt), _AGAIN, *later])))
    return tuple(messages)


def wrong_values(streak: Sequence[Attempt]) -> Mapping[str, tuple[FailedCheck, ...]]:
    """By call, what programs gave that was wrong: the calls of the last program first, each value once."""
    found: dict[str, dict[str, FailedCheck]] = {}
    for attempt in reversed(streak):
        for check in attempt.verdict.wrong:
            if check.expected and (check.call in found or len(found) < MAX_CASES):
                found.setdefault(check.call, {}).setdefault(check.got, check)
    return {call: tuple(checks.values())[:MAX_CASES] for call, checks in found.items()}


def sampling(base: Sampling, streak: Sequence[Attempt], plan: Plan, rounds: int) -> Sampling:
    """The first answer as it was asked for. A repair at temperature 0 is the same program again (38 of 40 times with
    the 1.5B model), so each next one is warmer; another start, and a rewrite, is another draw.
    """
    if not rounds:
        return base
    dialogue = bool(streak) and not is_rewrite(streak, plan)
    warm = min(FRESH_TEMPERATURE, 0.2 + 0.2 * len(streak)) if dialogue else FRESH_TEMPERATURE
    seed = (base.seed or 0) + _ROUND_SEEDS * rounds
    return base.model_copy(update={"temperature": max(base.temperature or 0.0, warm), "seed": seed})
