"""What an autonomous bot has set itself, in words for people."""

from stockade.core.events import OwnRules


def in_words(event: OwnRules) -> str:
    """All that is in force, and what was not taken."""
    sampling = event.sampling.model_dump(exclude_none=True)
    parts = [
        f"goal: {event.goal}" if event.goal else "",
        f"own prompt: {event.prompt}" if event.prompt else "",
        ", ".join(f"{name} {value}" for name, value in sampling.items()),
        *(f"not taken: {words}" for words in event.refused),
    ]
    return "; ".join(part for part in parts if part) or "nothing of its own"
