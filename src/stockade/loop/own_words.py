"""What an autonomous bot is told of its own rules: only what changed, so that the prompt before it stays as it was."""

from stockade.core.events import OwnRules

LINE = "====="
NO_RULES = OwnRules(at=0.0, turn=0)


def changed(now: OwnRules, before: OwnRules | None, task: str) -> str:
    """In words for the bot; "" when nothing is to be said. `task` is the goal that holds without a goal file."""
    last = before or NO_RULES
    parts: list[str] = []
    if now.goal != last.goal:
        parts.append(f"Your goal from now on: {now.goal}" if now.goal else f"Your goal is again: {task}")
    if now.prompt != last.prompt:
        parts.append(whole_prompt(now) or "Your part of the prompt, system.md, is gone.")
    if now.sampling != last.sampling:
        parts.append(f"In force from config.json: {sampling_words(now)}.")
    if now.refused and now.refused != last.refused:
        parts.append("This was not taken, what held before it goes on holding:\n" + "\n".join(now.refused))
    return "\n".join(parts)


def whole_prompt(now: OwnRules) -> str:
    return f"Your part of the prompt, from system.md:\n{LINE}\n{now.prompt}\n{LINE}" if now.prompt else ""


def sampling_words(now: OwnRules) -> str:
    given = now.sampling.model_dump(exclude_none=True)
    return ", ".join(f"{name} {value}" for name, value in given.items()) or "nothing, the defaults hold"
