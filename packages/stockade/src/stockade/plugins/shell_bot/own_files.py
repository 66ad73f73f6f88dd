"""The files by which an autonomous bot rules itself: goal, its part of the prompt, sampling. Read before each turn.

They are read inside the sandbox, as the bot would read them, and may hold anything. What cannot be taken is refused in
words for the bot, and what was in force before stays in force.
"""

import json
from dataclasses import dataclass

from pydantic import ValidationError, field_validator
from pydantic_core import PydanticKnownError

from stockade.core.events import Autonomy, SelfConfigChanged
from stockade.core.messages import Sampling
from stockade.core.model_options import SamplingOptions
from stockade.core.ports import Sandbox
from stockade.core.toolbox import wrong_words

GOAL, PROMPT, CONFIG = "goal", "system.md", "config.json"
MAX_GOAL_CHARS = 2000
MAX_PROMPT_CHARS = 8000
MAX_CONFIG_BYTES = 64 << 10
_READ_S = 10.0
_ABSENT, _NOT_REGULAR, _NO_ACCESS = 44, 47, 46
_READ = f"""
if [ ! -e "$1" ]; then exit {_ABSENT}; elif [ ! -f "$1" ]; then exit {_NOT_REGULAR}
elif [ ! -r "$1" ]; then exit {_NO_ACCESS}; fi
exec cat -- "$1"
"""
_WHY = {_NOT_REGULAR: "it is no plain file", _NO_ACCESS: "it cannot be read"}
_NO_EFFECT = ("stream", "tfs_z", "logprobs", "top_logprobs", "model")
"""What pocket-ASI takes in its config.json and has no counterpart here."""


class OwnSampling(SamplingOptions):
    """config.json. An answer must have room for an action: a bot that cannot answer could never mend that."""

    @field_validator("answer_tokens")
    @classmethod
    def _room(cls, value: int | None) -> int | None:
        if value is not None and value < 64:
            raise PydanticKnownError("greater_than_equal", {"ge": 64})
        if value is not None and value > 4096:
            raise PydanticKnownError("less_than_equal", {"le": 4096})
        return value


class _NotTaken(Exception):
    """The file is there and cannot be taken; the text says why."""


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """Reads them in one sandbox. `window` of the model in tokens bounds the prompt; None when nobody knows it."""

    sandbox: Sandbox
    folder: str
    may: Autonomy
    window: int | None = None

    async def read(self, turn: int, at: float, before: SelfConfigChanged | None) -> SelfConfigChanged:
        """What is in force from `turn` on. Raises SandboxDied."""
        last = before or SelfConfigChanged(at=at, turn=turn)
        refused: list[str] = []
        goal, prompt, sampling = None, None, Sampling()
        if self.may.goal:
            goal = await self._text(GOAL, MAX_GOAL_CHARS, last.goal, refused)
        if self.may.prompt:
            prompt = await self._text(PROMPT, self._prompt_chars(), last.prompt, refused)
        if self.may.sampling:
            sampling = await self._sampling(last.sampling, refused)
        return SelfConfigChanged(at=at, turn=turn, goal=goal, prompt=prompt, sampling=sampling, refused=tuple(refused))

    def _prompt_chars(self) -> int:
        """At most about a quarter of the window."""
        return MAX_PROMPT_CHARS if self.window is None else max(400, min(MAX_PROMPT_CHARS, self.window * 3 // 4))

    async def _text(self, name: str, limit: int, before: str | None, refused: list[str]) -> str | None:
        try:
            data = await self._file(name, 4 * limit)
            text = data.decode().strip() if data is not None else ""
            if len(text) > limit:
                raise _NotTaken(f"it is {len(text)} characters long, {limit} is the most: make it shorter")
        except UnicodeDecodeError:
            refused.append(f"{name}: it is not UTF-8 text: write it anew")
        except _NotTaken as error:
            refused.append(f"{name}: {error}")
        else:
            return "".join(char for char in text if char >= " " or char in "\n\t") or None
        return before

    async def _sampling(self, before: Sampling, refused: list[str]) -> Sampling:
        try:
            data = await self._file(CONFIG, MAX_CONFIG_BYTES)
            return parsed(data) if data is not None and data.strip() else Sampling()
        except _NotTaken as error:
            refused.append(f"{CONFIG}: {error}")
            return before

    async def _file(self, name: str, limit: int) -> bytes | None:
        """None when it is not there."""
        argv = ["sh", "-c", _READ, "sh", f"{self.folder.rstrip('/')}/{name}"]
        result = await self.sandbox.exec(argv, timeout_s=_READ_S, max_output_bytes=limit)
        if result.exit_code == _ABSENT:
            return None
        if result.timed_out or result.exit_code:
            raise _NotTaken(_WHY.get(result.exit_code, "it cannot be read"))
        if result.truncated_bytes:
            raise _NotTaken(f"it is larger than {limit} bytes: make it shorter")
        return result.stdout


def parsed(data: bytes) -> Sampling:
    """The sampling of a config.json. _NotTaken says which key is wrong, and what would be right."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        raise _NotTaken('it is not JSON: write an object as {"temperature": 0.8}') from None
    if not isinstance(values, dict):
        raise _NotTaken('it is no object: write {"temperature": 0.8}')
    given = {("answer_tokens" if key == "max_tokens" else key): value for key, value in values.items()}
    if unknown := [str(key) for key in given if key not in OwnSampling.model_fields and key not in _NO_EFFECT]:
        raise _NotTaken(f"there is no setting {unknown[0][:40]!r}: there are {', '.join(OwnSampling.model_fields)}")
    wanted = {key: value for key, value in given.items() if key not in _NO_EFFECT}
    try:
        options = OwnSampling.model_validate(wanted, strict=False)
    except ValidationError as error:
        raise _NotTaken(wrong_words(error).lower()) from None
    fields = options.model_dump(exclude={"answer_tokens"})
    return Sampling(**fields, max_tokens=options.answer_tokens)


def over(base: Sampling, own: Sampling) -> Sampling:
    """`base` with what the bot has set itself."""
    return base.model_copy(update=own.model_dump(exclude_none=True))
