"""What a person may set: each setting is defined here, once.

Its flag, its `STOCKADE_*` variable, its TOML key, its `-o` key, its line in docs/settings-reference.md and its place in
the JSON schema come from that definition. A setting is an attribute with a `Setting` in its annotation; runtime/spec.py
makes a pydantic model of the classes. Imports nothing heavy: `--help` is made from this.
"""

import inspect
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args

_KEYS = {"copy_in": "copy", "json_lines": "json"}
RENAMED = {"secret": "redact", "advice": "small_models"}
"""Settings of version 1 and what they are called now."""
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[Effort, ...] = get_args(Effort)
LogLevel = Literal["off", "error", "warning", "info", "debug"]
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]


def nearest_effort(effort: Effort, known: Iterable[Effort]) -> Effort | None:
    """The nearest that is known, below where there is one; never `none` for any other. None where there is none."""
    levels = sorted(EFFORTS.index(one) for one in known if effort == "none" or one != "none")
    below = [level for level in levels if level <= EFFORTS.index(effort)]
    return EFFORTS[below[-1] if below else levels[0]] if levels else None


def key_of(name: str) -> str:
    """How the attribute of that name is written."""
    return _KEYS.get(name, name)


def listed(value: object) -> object:
    """One text is a list of one."""
    return (value,) if isinstance(value, str) else () if value is None else value


@dataclass(frozen=True, slots=True)
class Described:
    """Stands in a pydantic field for its `Setting`."""

    setting: "Setting"

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {**handler(schema), "description": self.setting.help}


@dataclass(frozen=True, slots=True)
class Setting:
    """`help`: a line on it. `metavar`: what its flag takes; empty for a switch, and where the type names the choices.

    `ge`, `gt`, `le`: bounds of a number. `in_bots`: the file of a bot may set it too. `whole`: of a list; a text in a
    file is a list of one, and in other places its values stand on lines of their own, not between commas.
    """

    help: str
    metavar: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    in_bots: bool = False
    whole: bool = False

    __is_annotated_types_grouped_metadata__: typing.ClassVar[Literal[True]] = True

    def __iter__(self) -> Iterator[object]:
        """What pydantic takes it for: its bounds, and itself."""
        from annotated_types import Ge, Gt, Le  # noqa: PLC0415 (a part of pydantic, which `--help` does without)

        for kind, bound in ((Ge, self.ge), (Gt, self.gt), (Le, self.le)):
            if bound is not None:
                yield kind(bound)
        if self.whole:
            from pydantic import BeforeValidator  # noqa: PLC0415 (the same)

            yield BeforeValidator(listed)
        yield Described(self)


# fmt: off
class SamplingSettings:
    """How the next token is drawn; None leaves it to the model's server."""

    seed: Annotated[int | None, Setting(
        "Seed of the sampling: the same seed gives the same run, on a local server of its own.", "N", ge=0,
        le=2**32 - 1, in_bots=True)] = None
    temperature: Annotated[float | None, Setting(
        "Temperature of the sampling; 0 takes the likeliest token.", "T", ge=0, le=5, in_bots=True)] = None
    top_p: Annotated[float | None, Setting(
        "Sample from the likeliest tokens that make up P together.", "P", ge=0, le=1, in_bots=True)] = None
    top_k: Annotated[int | None, Setting(
        "Sample from the N likeliest tokens; 0 is all.", "N", ge=0, in_bots=True)] = None
    min_p: Annotated[float | None, Setting(
        "Sample from tokens at least P as likely as the likeliest.", "P", ge=0, le=1)] = None
    typical_p: Annotated[float | None, Setting("Locally typical sampling (llama.cpp).", "P", ge=0, le=1)] = None
    repeat_penalty: Annotated[float | None, Setting(
        "Penalty for recently used tokens; 1 is off.", "X", gt=0, le=10)] = None
    repeat_last_n: Annotated[int | None, Setting(
        "How many recent tokens the repeat penalty looks at (llama.cpp); -1 is the whole window.", "N", ge=-1)] = None
    presence_penalty: Annotated[float | None, Setting("Penalty for tokens used at all.", "X", ge=-2, le=2)] = None
    frequency_penalty: Annotated[float | None, Setting(
        "Penalty for tokens by how often they were used.", "X", ge=-2, le=2)] = None
    mirostat_mode: Annotated[int | None, Setting(
        "Mirostat sampling (llama.cpp); 0 is off.", "0|1|2", ge=0, le=2)] = None
    mirostat_tau: Annotated[float | None, Setting("Mirostat target entropy (tau).", "X", gt=0)] = None
    mirostat_eta: Annotated[float | None, Setting("Mirostat learning rate (eta).", "X", gt=0)] = None
    dry_multiplier: Annotated[float | None, Setting(
        "DRY: penalty for repeated sequences (llama.cpp); 0 is off.", "X", ge=0, le=10)] = None
    effort: Annotated[Effort | None, Setting(
        "How much a reasoning model thinks before it answers; by default as much as it does by itself.",
        in_bots=True)] = None
    answer_tokens: Annotated[int | None, Setting("Token limit of one answer; 1024 on local models.", "N", ge=1)] = None


class LoadSettings:
    """How a local model is loaded; None leaves it to llama.cpp. `ctx_size` in tokens of one conversation."""

    ctx_size: Annotated[int | None, Setting(
        "Context window of an embedded model, in tokens.", "N", ge=512, le=16_777_216, in_bots=True)] = None
    threads: Annotated[int | None, Setting("Threads of an embedded model.", "N", ge=1, le=1024)] = None
    gpu_layers: Annotated[int | None, Setting("Layers of an embedded model on the GPU.", "N", ge=-1)] = None
    threads_batch: Annotated[int | None, Setting("Threads for prompt processing.", "N", ge=1, le=1024)] = None
    batch_size: Annotated[int | None, Setting("Batch size (n_batch).", "N", ge=32, le=65536)] = None
    ubatch_size: Annotated[int | None, Setting("Physical batch size (n_ubatch).", "N", ge=32, le=65536)] = None
    mmap: Annotated[bool | None, Setting("Map the model file, or read it whole.")] = None
    mlock: Annotated[bool | None, Setting("Keep the model from being swapped out.")] = None
    cache_type_k: Annotated[CacheType | None, Setting(
        "Type of the KV cache's keys, as f16 or q8_0.", "TYPE")] = None
    cache_type_v: Annotated[CacheType | None, Setting("Type of the KV cache's values.", "TYPE")] = None
    rope_freq_base: Annotated[float | None, Setting("Base frequency of RoPE; 0 is the model's.", "X", ge=0)] = None
    rope_freq_scale: Annotated[float | None, Setting("Frequency scale of RoPE.", "X", gt=0)] = None
    main_gpu: Annotated[int | None, Setting("The GPU that holds what is not split.", "N", ge=0)] = None
    split_mode: Annotated[Literal["none", "layer", "row"] | None, Setting(
        "How a model is split over several GPUs.", "none|layer|row")] = None
    tensor_split: Annotated[str | None, Setting("Shares of the GPUs.", "X,Y,...")] = None
    numa: Annotated[Literal["distribute", "isolate", "numactl"] | None, Setting(
        "NUMA strategy, on machines with several memory nodes.", "distribute|isolate|numactl")] = None
    lora: Annotated[str | None, Setting("A LoRA adapter.", "FILE")] = None


class RunSettings(SamplingSettings, LoadSettings):
    """All else of a run."""

    bot: Annotated[str, Setting(
        "Which bot: a name of `stockade bots`, or the TOML file of your own; writing by default.",
        "NAME|FILE.toml")] = "writing"
    model: Annotated[str, Setting(
        "Which model; auto picks one and says why.", "PROVIDER/NAME", in_bots=True)] = "auto"
    smart_model: Annotated[str | None, Setting(
        "A stronger model, asked where the run is stuck: the same result again and again, answers without an action.",
        "PROVIDER/NAME")] = None
    api: Annotated[Literal["auto", "chat", "responses"], Setting(
        "Which of OpenAI's APIs an openai/NAME is asked by; auto is /v1/responses at OpenAI itself and on Azure, and"
        " /v1/chat/completions on any other server.", in_bots=True)] = "auto"
    fast_model: Annotated[str | None, Setting(
        "A faster model: summaries when the window is full, and a Planner's profile.", "PROVIDER/NAME")] = None
    fallback: Annotated[tuple[str, ...], Setting(
        "A model to go on with when the one before it is down or refuses; give it again for a third.",
        "PROVIDER/NAME")] = ()
    answers: Annotated[str, Setting(
        "Tool-call format.", "auto|native|json|fenced|NAME", in_bots=True)] = "auto"
    grammar: Annotated[str | None, Setting(
        "A GBNF grammar that llama.cpp holds each answer to; with answers that are text.", "FILE")] = None
    max_turns: Annotated[int | None, Setting("Turn limit; 0 is unlimited.", "N", ge=0, in_bots=True)] = None
    timeout: Annotated[float | None, Setting(
        "Time limit of the run in seconds; 0 is unlimited.", "S", ge=0, in_bots=True)] = None
    max_tokens: Annotated[int | None, Setting(
        "Token limit, prompts and answers together.", "N", ge=0, in_bots=True)] = None
    max_cost: Annotated[float | None, Setting("Cost limit of the run.", "USD", ge=0, in_bots=True)] = None
    best_of: Annotated[int | None, Setting(
        "N candidates do the task at once: with --check the first that passes is taken, else you choose.", "N", ge=1,
        le=32, in_bots=True)] = None
    attach: Annotated[tuple[str, ...], Setting(
        "An image that the model sees beside the task: PNG, JPEG, GIF or WebP.", "FILE", whole=True)] = ()
    check: Annotated[tuple[str, ...], Setting(
        "The run is verified when CMD succeeds at the end, in a fresh sandbox on what the bot wrote.", "CMD",
        in_bots=True, whole=True)] = ()
    protect: Annotated[tuple[str, ...], Setting(
        "A path of the folder that is as you gave it while a check runs, whatever the bot wrote there.", "PATH",
        in_bots=True, whole=True)] = ()
    score: Annotated[str | None, Setting(
        "As check, but once, when the bot is done: it hears nothing of it. Its answer is in $ANSWER.", "CMD",
        in_bots=True)] = None
    output_schema: Annotated[str | None, Setting(
        "The answer is JSON that fits this JSON schema; status 1 when it never does.", "FILE")] = None
    folder: Annotated[tuple[str, ...], Setting(
        "A folder to work in; MODE is ro, overlay (changes are reviewed) or rw. The first one is /workspace.",
        "PATH[:MODE]")] = ()
    copy_in: Annotated[tuple[str, ...], Setting("A file or folder copied in.", "PATH[:DEST]")] = ()
    sandbox: Annotated[str, Setting(
        "Sandbox backend: auto, bubblewrap, docker, podman, gvisor or unconfined; https://...: on another machine.",
        "NAME|https://HOST:PORT", in_bots=True)] = "auto"
    image: Annotated[str | None, Setting(
        "System to use instead of the host's: oci:DIR, docker-archive:FILE, NAME@sha256:HEX, a folder with a root file"
        " system; on docker and podman a local image's name.", "REF", in_bots=True)] = None
    toolchain: Annotated[str | None, Setting(
        "Mount your own interpreters and tools read-only: auto (what the folder needs), none, or a PATH; by default"
        " what you allowed before.", "auto|none|PATH")] = None
    net: Annotated[str, Setting(
        "Network; none by default. HOST[:PORT], *.SUFFIX, @PRESET (@python, @npm ...), CIDR, localhost:PORT; open is"
        " every public name.", "none|open|HOST,...", in_bots=True)] = "none"
    command_timeout: Annotated[float | None, Setting(
        "Time limit of one command and check in seconds; 0 is unlimited. By default 60, up to 600 where a command asks"
        " for it; 600 for a check.", "S", ge=0, in_bots=True)] = None
    streams: Annotated[Literal["one", "separate"], Setting(
        "A command's stdout and stderr: one stream in exact order, or separate ones (the Shell bot's default), whose"
        " order is approximate.", in_bots=True)] = "one"
    memory: Annotated[str | None, Setting(
        "Memory limit of the sandbox, as 512M or 2G. By default 2G, or half of the machine's where a control group"
        " holds it.", "SIZE", in_bots=True)] = None
    cpus: Annotated[float | None, Setting(
        "CPU limit of the sandbox, as 1.5; refused where it cannot be enforced.", "N", ge=0, in_bots=True)] = None
    processes: Annotated[int | None, Setting(
        "Most processes and threads in the sandbox. By default 256, or 64 for each processor.", "N", ge=0,
        in_bots=True)] = None
    disk: Annotated[str | None, Setting(
        "Disk limit, as 2G; one file may have at most half of it. By default 2G, or an eighth of what is free, up to"
        " 16G.", "SIZE", in_bots=True)] = None
    env: Annotated[tuple[str, ...], Setting(
        "Set an environment variable in the sandbox; no other is passed in.", "NAME[=VALUE]", in_bots=True)] = ()
    credential: Annotated[tuple[str, ...], Setting(
        "A secret that never enters the sandbox: the proxy puts NAME's value into requests to HOST only.",
        "NAME@HOST[:HEADER]", whole=True)] = ()
    ssh_agent: Annotated[tuple[str, ...], Setting(
        "Let git log in to this account by your ssh-agent: it signs for that host only, and the keys stay outside.",
        "USER@HOST[:PORT]", whole=True)] = ()
    ca: Annotated[tuple[str, ...], Setting(
        "Trust these certificates (PEM) beside this machine's: inside, and towards a credential's host.", "FILE",
        whole=True)] = ()
    redact: Annotated[tuple[str, ...], Setting(
        "Hide this variable's value in all output, as those are that look secret.", "NAME")] = ()
    tool: Annotated[tuple[str, ...], Setting(
        "One more tool: a name (stockade tool list) or its file.", "NAME|FILE")] = ()
    search: Annotated[str | None, Setting(
        "The engine of web_search: a SearXNG, or DuckDuckGo.", "ADDRESS|duckduckgo")] = None
    mcp: Annotated[tuple[str, ...], Setting("MCP servers of a .json file, started in the sandbox.", "FILE")] = ()
    no_tool: Annotated[tuple[str, ...], Setting("Remove a tool of the bot.", "NAME")] = ()
    allow_external: Annotated[tuple[str, ...], Setting(
        "Let tool NAME run on the host, outside the sandbox.", "NAME")] = ()
    approve: Annotated[str, Setting(
        "Ask before each action, or before those that no rule calls harmless, a FILE of your own beside the built-in"
        " ones; without a terminal that is no.", "never|ask|rules[=FILE]", in_bots=True)] = "never"
    loop_repeats: Annotated[int, Setting(
        "Equal results in a row after which a run is stopped; 0 is never.", "N", ge=0, in_bots=True)] = 5
    small_models: Annotated[bool | None, Setting(
        "Turn the help for small models on or off, whatever the model.", in_bots=True)] = None
    own_goal: Annotated[bool, Setting("Whether the Shell bot may set its goal.")] = True
    own_prompt: Annotated[bool, Setting("Whether it may write a part of its prompt.")] = True
    own_sampling: Annotated[bool, Setting("Whether it may set how it is sampled.")] = True
    intro: Annotated[bool, Setting("Whether six scripted actions come first.")] = True
    keep_warm_s: Annotated[float, Setting(
        "Seconds an embedded model stays loaded after its last user.", "S", ge=0)] = 300.0
    llama_server: Annotated[str | None, Setting(
        "llama-server binary to use instead of the built-in engine.", "PATH|off")] = None
    store: Annotated[str | None, Setting(
        "Where runs are recorded: a file, or postgresql://USER@HOST/DATABASE.", "PATH|ADDRESS")] = None


class FrontSettings:
    """How the command line talks, and what becomes of the changes."""

    json_lines: Annotated[bool, Setting("JSON on stdout.")] = False
    quiet: Annotated[bool, Setting("The answer only.")] = False
    plain: Annotated[bool, Setting("No colours, no spinner.")] = False
    verbose: Annotated[bool, Setting("Show output whole, however long it is.")] = False
    raw_answers: Annotated[bool, Setting("Show the model's answers as it writes them, while they come.")] = False
    log_level: Annotated[LogLevel, Setting(
        "Write a log to stderr: a run's events, at debug all that is in them, and requests to models.")] = "off"
    apply: Annotated[bool, Setting("Apply the changes to the folder at the end, without asking.")] = False
    discard: Annotated[bool, Setting("Discard the changes at the end, without asking.")] = False
    no_folder: Annotated[bool, Setting("Work in no folder where none is given, not in the current one.")] = False
    bell: Annotated[bool, Setting(
        "Ring the terminal's bell, and pop up where it can, when a run that took over 30 s ends or asks.")] = True
    notify: Annotated[str, Setting(
        "A command for sh when the run ends or asks: JSON on its standard input.", "CMD")] = ""
    no_input: Annotated[bool, Setting("Never ask; changes are kept for later.")] = False


# fmt: on
@dataclass(frozen=True, slots=True)
class Field:
    """A setting as it stands in its class. `kind`: its type without None; `optional`: None is one of its values."""

    key: str
    kind: Any
    optional: bool
    default: object
    setting: Setting

    @property
    def many(self) -> bool:
        return typing.get_origin(self.kind) is tuple


@cache
def fields(settings: type) -> Mapping[str, Field]:
    """The settings of a class by what a person writes, in order."""
    results = dict[str, Field]()
    for one in reversed(settings.__mro__):
        hints: dict[str, Any] = inspect.get_annotations(one)
        for name, hint in hints.items():
            if typing.get_origin(hint) is Annotated:
                kind, setting = typing.get_args(hint)[:2]
                either = typing.get_origin(kind) in (types.UnionType, typing.Union)
                union = typing.get_args(kind) if either else (kind,)
                plain = next(part for part in union if part is not type(None))
                results[key_of(name)] = Field(
                    key_of(name), plain, type(None) in union, getattr(settings, name), setting
                )
    return results
