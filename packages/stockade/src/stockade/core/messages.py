"""What a model is sent and what it sends back, independent of provider."""

from typing import Any, Literal

from pydantic import Field

from stockade.core.data import Data
from stockade.core.settings import Effort

Role = Literal["system", "user", "assistant", "tool"]


class Image(Data):
    """A picture that the user or a tool gave: the name of its file, what its content is, and its bytes."""

    name: str
    media_type: Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
    base64: str

    @property
    def url(self) -> str:
        """It as a `data:` address."""
        return f"data:{self.media_type};base64,{self.base64}"

    @property
    def kilobytes(self) -> int:
        return -(-len(self.base64) * 3 // 4000)


class Reasoning(Data):
    """An answer as its provider wants it back with the next question, unchanged: signed or encrypted thinking in it.

    `form` says whose: content blocks of Anthropic, output items of OpenAI's Responses, or fields of the message of a
    chat completion, those of its calls under `tool_calls`, by position (one item). `changed`: a secret in it was
    replaced, and it does not go back.
    """

    form: Literal["anthropic", "responses", "chat"]
    items: tuple[dict[str, Any], ...]
    changed: bool = False

    @property
    def told(self) -> str:
        """What of it is for people: summaries by Anthropic and OpenAI, also of what was said between calls."""
        texts: list[object] = []
        for item in self.items:
            kind, parts = (self.form, item.get("type")), item.get("summary")
            if kind == ("anthropic", "thinking"):
                texts.append(item.get("thinking"))
            elif kind == ("responses", "reasoning") and isinstance(parts, list):
                texts += [part.get("text") for part in parts if isinstance(part, dict)]
        return "\n".join(text for text in texts if isinstance(text, str) and text.strip())


class Message(Data):
    """One message. `tool_calls` and `tool_call_id` only where the answer protocol is native tool calls; `images` only
    in one of the user, `reasoning` only in an answer that was given with some.
    """

    role: Role
    content: str
    images: tuple[Image, ...] = ()
    tool_calls: tuple[dict[str, Any], ...] | None = None
    tool_call_id: str | None = None
    reasoning: Reasoning | None = None


def joined(one: Message, other: Message) -> Message:
    """Two of the same role as one, without calls."""
    return Message(role=one.role, content=f"{one.content}\n\n{other.content}", images=one.images + other.images)


class Sampling(Data):
    """How the next token is drawn; None leaves it to the server. `max_tokens` bounds one answer. `effort`: how much a
    model that reasons thinks first. `smart`: the stronger model is asked, where the run has one; it is no parameter of
    a server. `grammar`: the GBNF that llama.cpp holds the answer to, in place of a schema's.

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
    smart: bool | None = None
    effort: Effort | None = None
    grammar: str | None = None


class ModelRequest(Data):
    """One question to a model. `schema_` (JSON schema) and `tools` are what the answer protocol wants enforced."""

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    schema_: dict[str, Any] | None = None
    tools: tuple[dict[str, Any], ...] | None = None
    stop: tuple[str, ...] | None = None


class Usage(Data):
    """Tokens and USD of one answer or of a run. `cached_tokens` is the part of the prompt served from the KV cache,
    `thinking_tokens` the part of the completion that the model thought, `thinking_cost` what that part cost.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    thinking_tokens: int = 0
    cost: float = 0.0
    thinking_cost: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(**{name: getattr(self, name) - getattr(other, name) for name in Usage.model_fields})


REPEATS = "repeats"


class ModelAnswer(Data):
    """What came back, unread. `finish_reason`: `stop`, `length` (cut by a limit), `tool_calls`, `repeats` (it said one
    thing over and over, and was ended by us), or another word. `by`: PROVIDER/NAME of who gave it, where that is not
    the run's own model; `why` it was asked.
    """

    content: str
    tool_calls: tuple[dict[str, Any], ...] = ()
    finish_reason: str = "stop"
    usage: Usage = Usage()
    duration_s: float = 0.0
    model: str = ""
    by: str = ""
    why: str = ""
    reasoning: Reasoning | None = None

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
    `parameters` counts all, those of every expert too; None when nobody says. `sees`: whether it takes images, None
    when nobody says. `sources` says, for a field of these, who told it.
    """

    name: str
    provider: str
    context_window: int | None = None
    enforces_schema: bool = False
    native_tools: bool = False
    local: bool = True
    priced: bool = True
    parameters: int | None = None
    sees: bool | None = None
    sources: dict[str, str] = Field(default_factory=dict)

    @property
    def small(self) -> bool | None:
        """Whether it is known to have at most 4 B parameters in all; None when nothing is known."""
        return is_small(self.parameters)


def cannot_see(info: ModelInfo) -> str:
    """What is said of a model that takes no images, behind its name."""
    return f"does not see images (so says {info.sources.get('sees', 'its provider')})"
