"""A profile for a task, asked of a model under a schema and read leniently."""

from typing import Any

from stockade.answers.lenient import first_value, spoken
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import Message, ModelAnswer, ModelRequest, Sampling
from stockade.core.profile import MAX_DIRECTIVE_CHARS, MAX_DIRECTIVES, MAX_NAME_CHARS, MAX_ROLE_CHARS, Profile

MAX_TASK_CHARS = 4000
_ANSWER_TOKENS = 400
_ASKED_CHARS = 120
_MOST, _LEAST = 4, 1
_DIRECTIVES = ("best_practices", "constraints")
_SYSTEM = (
    "You set up a worker for a task that it will do alone in a bash shell on Linux, in a folder."
    " Answer with one JSON object: name (two or three words that say what the worker is), role (one sentence: who it"
    " is and what it is good at), best_practices (1 to 4 short sentences on how to do this task well), constraints"
    " (1 to 4 short sentences on what it must not do). Speak of this task only."
)


def question(task: str) -> ModelRequest:
    """What a model is asked for a profile."""
    sentences = {
        "type": "array",
        "items": {"type": "string", "maxLength": _ASKED_CHARS},
        "minItems": _LEAST,
        "maxItems": _MOST,
    }
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40},
            "role": {"type": "string", "maxLength": _ASKED_CHARS + 40},
            "best_practices": sentences,
            "constraints": sentences,
        },
        "required": ["name", "role", *_DIRECTIVES],
        "additionalProperties": False,
    }
    return ModelRequest(
        messages=(
            Message(role="system", content=_SYSTEM),
            Message(role="user", content=f"The task:\n{task[:MAX_TASK_CHARS]}"),
        ),
        sampling=Sampling(temperature=0.0, max_tokens=_ANSWER_TOKENS),
        schema_=schema,
    )


def read(answer: ModelAnswer) -> Profile:
    """The profile in an answer; what is too long is cut. UnreadableAnswer when name or role is missing."""
    found: Any = first_value(spoken(answer.content), "{")
    if isinstance(found, dict) and isinstance(inner := found.get("profile", found.get("arguments")), dict):
        found = inner
    if not isinstance(found, dict):
        raise UnreadableAnswer("the profile is no JSON object")
    directives = found.get("directives")
    found = {**directives, **found} if isinstance(directives, dict) else found
    name, role = (_line(found.get(key)) for key in ("name", "role"))
    role = role or _line(found.get("description"))
    if not name or not role:
        raise UnreadableAnswer("the profile has no name or no role")
    return Profile(
        name=name[:MAX_NAME_CHARS],
        role=role[:MAX_ROLE_CHARS],
        constraints=_sentences(found.get("constraints")),
        resources=_sentences(found.get("resources")),
        best_practices=_sentences(found.get("best_practices")),
    )


def _line(value: object) -> str:
    """In one line, without what a terminal would obey."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return "".join(char for char in text if char.isprintable())


def _sentences(value: object) -> tuple[str, ...]:
    """Each once, in order."""
    lines = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(dict.fromkeys(line[:MAX_DIRECTIVE_CHARS] for item in lines if (line := _line(item))))[:MAX_DIRECTIVES]
