"""What the model is asked next: the messages and the sampling, from what failed so far. Pure functions.

A program that does not run is shown again once, with the error: that is a repair in a dialogue. One that runs and gives
wrong values is not shown: a small model copies it, greedy or warm (docs/coder.md). The task is asked again with the
values that must come and with a plan before the code, and drawn warm.
"""

from collections.abc import Mapping, Sequence

from stockade.core.messages import Message, Sampling
from stockade.plugins.coder import prompts
from stockade.plugins.coder.report import FailedCheck
from stockade.plugins.coder.work import Attempt, Explain, Plan

FRESH_TEMPERATURE = 0.8
MAX_CASES = 3
_ROUND_SEEDS = 1000


def is_rewrite(streak: Sequence[Attempt], plan: Plan) -> bool:
    """Whether the program is written anew, told what came of others, in place of being shown again."""
    programs = _programs(streak)
    return plan.rewrite and bool(programs) and (len(programs) > 1 or bool(programs[-1].verdict.wrong))


def _programs(streak: Sequence[Attempt]) -> list[Attempt]:
    """Without answers that held none: told that its form was wrong, a small model answers with that."""
    return [attempt for attempt in streak if attempt.code]


def told(streak: Sequence[Attempt], plan: Plan, explain: Explain) -> str:
    """What the model is told of what failed, whether the program is shown or not."""
    if not is_rewrite(streak, plan):
        return explain(streak[-1])
    wrong = wrong_values(streak)
    return prompts.cases(wrong) if wrong else prompts.failed(_programs(streak)[-1].verdict.words)


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
        return prompts.anew(front, told(streak, plan, explain), wants_example=wants_example)
    messages = list(prompts.opening(front, wants_example=wants_example))
    ends: list[int | None] = [program.number for program in programs[1:]]
    for attempt, end in zip(programs, [*ends, None], strict=False):
        later = [text for turn, text in words if attempt.number < turn and (end is None or turn <= end)]
        messages.append(Message(role="assistant", content=attempt.answer))
        messages.append(Message(role="user", content="\n\n".join([prompts.repair(explain(attempt)), *later])))
    return tuple(messages)


def wrong_values(streak: Sequence[Attempt]) -> Mapping[str, tuple[FailedCheck, ...]]:
    """By call, what programs gave that was wrong: the calls of the last program first, each value once."""
    found: dict[str, dict[str, FailedCheck]] = {}
    for attempt in reversed(streak):
        for check in attempt.verdict.wrong:
            if check.call in found or len(found) < MAX_CASES:
                found.setdefault(check.call, {}).setdefault(check.got, check)
    return {call: tuple(checks.values())[:MAX_CASES] for call, checks in found.items()}


def sampling(base: Sampling, streak: Sequence[Attempt], plan: Plan, rounds: int, candidate: int) -> Sampling:
    """The first answer as it was asked for. A repair at temperature 0 is the same program again (38 of 40 times with
    the 1.5B model), so each next one is warmer; another start, and a rewrite, is another draw.
    """
    if not rounds and not candidate:
        return base
    dialogue = bool(streak) and not candidate and not is_rewrite(streak, plan)
    warm = min(FRESH_TEMPERATURE, 0.2 + 0.2 * len(streak)) if dialogue else FRESH_TEMPERATURE
    seed = (base.seed or 0) + _ROUND_SEEDS * rounds + candidate
    return base.model_copy(update={"temperature": max(base.temperature or 0.0, warm), "seed": seed})


def candidate_of(base: Sampling, asked: Sampling | None) -> int:
    """Which candidate of its round an answer is, by what it was asked with."""
    return 0 if asked is None or asked.seed is None else (asked.seed - (base.seed or 0)) % _ROUND_SEEDS


__all__ = ["FRESH_TEMPERATURE", "candidate_of", "conversation", "is_rewrite", "sampling", "told", "wrong_values"]
