"""What a model is sent and what it sends back, independent of provider."""

from typing import Any, Literal

from pydantic import Field

from stockade.core.data import Data

Role = Literal["system", "user", "assistant", "tool"]


class Message(Data):
    """One message. `tool_calls` and `tool_call_id` only where the answer protocol is native tool calls."""

    role: Role
    content: str
    tool_calls: tuple[dict[str, Any], ...] | None = None
    tool_call_id: str | None = None


class Sampling(Data):
    """How the next token is drawn; None leaves it to the server. `max_tokens` bounds one answer.

    What a server does not know is not sent to it: `typical_p`, `repeat_last_n`, `mirostat_*` and
    `dry_multiplier` are llama.cpp's. The last is the strength of DRY, a penalty on going on as the text went before.
    """

    temperature: float | None = Field(default=None, ge=0, le=5)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    min_p: float | None = Field(default=None, ge=0, le=1)
    typical_p: float | None = Field(default=None, ge=0, le=1)
    repeat_penalty: float | None = Field(default=None, gt=0)
    repeat_last_n: int | None = Field(default=None, ge=-1)
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    mirostat_mode: int | None = Field(default=None, ge=0, le=2)
    mirostat_tau: float | None = Field(default=None, gt=0)
    mirostat_eta: float | None = Field(default=None, gt=0)
    dry_multiplier: float | None = Field(default=None, ge=0)
    seed: int | None = None
    max_tokens: int | None = Field(default=None, ge=1)


class ModelRequest(Data):
    """One question to a model. `schema_` (JSON schema) and `tools` are what the answer protocol wants enforced."""

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    schema_: dict[str, Any] | None = None
    tools: tuple[dict[str, Any], ...] | None = None
    stop: tuple[str, ...] | None = None


class Usage(Data):
    """Tokens of one answer or of a run. `cached_tokens` is the part of the prompt served from the KV cache."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cost=self.cost + other.cost,
        )

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt_tokens=self.prompt_tokens - other.prompt_tokens,
            cached_tokens=self.cached_tokens - other.cached_tokens,
            completion_tokens=self.completion_tokens - other.completion_tokens,
            cost=self.cost - other.cost,
        )


REPEATS = "repeats"


class ModelAnswer(Data):
    """What came back, unread. `finish_reason`: `stop`, `length` (cut by a limit), `tool_calls`, `repeats` (it said one
    thing over and over, and was ended by us), or another word.
    """

    content: str
    tool_calls: tuple[dict[str, Any], ...] = ()
    finish_reason: str = "stop"
    usage: Usage = Usage()
    duration_s: float = 0.0
    model: str = ""

    @property
    def cut(self) -> bool:
        """It has not come to its end by itself."""
        return self.finish_reason in ("length", REPEATS)


SMALL_PARAMETERS = 4_050_000_000
"""The most that a model known to be small has: 4.0 B, rounded to a tenth of a billion as their makers do."""


def is_small(parameters: int | None) -> bool | None:
    """Whether a model with so many parameters in all is small; None where nobody knows how many it has."""
    return None if parameters is None else parameters <= SMALL_PARAMETERS


def billions(parameters: int) -> str:
    """`1.5 B`, `135 M`."""
    return f"{parameters / 1e9:.1f} B" if parameters >= 10**9 else f"{parameters / 1e6:.0f} M"


class ModelInfo(Data):
    """What is known of a model before it is asked. `context_window` in tokens, None when nobody says.

    `native_tools`: a tool call was seen to come back; `enforces_schema`: an answer was seen to keep a JSON schema.
    `priced`: what it costs is known; local ones cost nothing.
    `parameters` counts all, those of every expert too; None when nobody says. `sources` says, for a field of these,
    who told it.
    """

    name: str
    provider: str
    context_window: int | None = None
    enforces_schema: bool = False
    native_tools: bool = False
    local: bool = True
    priced: bool = True
    parameters: int | None = None
    sources: dict[str, str] = Field(default_factory=dict)

    @property
    def small(self) -> bool | None:
        """Whether it is known to have at most 4 B parameters in all; None when nothing is known."""
        return is_small(self.parameters)
