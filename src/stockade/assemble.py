"""From what the person asked for to a run ready to start. The only place that names concrete adapters.

Adapters are imported inside the functions that need them, so that `stockade --help` and `runs list` stay quick.
"""

import os
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import platformdirs
from anyio import to_thread
from pydantic import Field

from stockade import __version__
from stockade.bots.opening import opening
from stockade.bots.spec import BUILT_IN, BotSpec
from stockade.core.budget import Budget
from stockade.core.changes import FolderLayer
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent, RunFinished, RunResumed, RunStarted, SandboxStarted
from stockade.core.messages import ModelInfo
from stockade.core.model_options import LoadOptions, SamplingOptions
from stockade.core.policy import WORKSPACE, CopyRule, FolderMode, FolderRule, Limits, Network, Policy, parse_size
from stockade.core.ports import AnswerProtocol, Model, OnEvent, OnText, Reviewer, RunStore, Sandbox
from stockade.core.secrets import Redactor, known, watched
from stockade.loop.resume import resume
from stockade.loop.run import Parts, run

if TYPE_CHECKING:
    from stockade.core.findings import Finding
    from stockade.models.listing import ModelEntry
    from stockade.models.settings import ModelSettings
    from stockade.store.recover import Recovered

MAX_TASK_BYTES = 1_000_000
KEPT_BYTES = 2 << 30
"""Of what a bot wrote in earlier turns, a folder, for going back to them."""
_MODES: dict[str, FolderMode] = {"ro": "ro", "overlay": "overlay", "rw": "rw"}
LOADING = set(LoadOptions.model_fields)
"""Options of a model that a run goes on with."""
OnProgress = Callable[[str, int, int], None]
"""What is being done, and how far it is: (words, done, total); total 0 when unknown."""


class Options(SamplingOptions, LoadOptions):
    """What a person may set, by flag, `STOCKADE_*` variable or TOML key of the same name."""

    task: str = ""
    bot: str = "writing"
    model: str = "auto"
    answers: str = "auto"
    folder: tuple[str, ...] = ()
    copy_in: tuple[str, ...] = Field(default=(), alias="copy")
    sandbox: str = "auto"
    image: str | None = None
    net: str = "none"
    max_turns: int | None = Field(default=None, ge=0)
    timeout: float | None = Field(default=None, ge=0)
    command_timeout: float | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=0)
    max_cost: float | None = Field(default=None, ge=0)
    memory: str | None = None
    processes: int | None = Field(default=None, ge=0)
    disk: str | None = None
    env: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    check: str | None = None
    keep_warm_s: float = Field(default=300.0, ge=0)
    llama_server: str | None = None
    store: str | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that only has to be started with loop.run.run. `note` says which model was picked and why."""

    started: RunStarted
    parts: Parts
    note: str | None = None
    history: tuple[RunEvent, ...] = ()
    resumed: RunResumed | None = None
    restore: Callable[[], None] | None = None
    """Of a run that goes on: what is on record, how it goes on, and what brings its folders back. Blocks."""


class SystemClock:
    """Implements core.ports.Clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def state_dir() -> Path:
    """Where runs are kept: `$XDG_STATE_HOME/stockade`."""
    return Path(platformdirs.user_state_dir("stockade", appauthor=False))


def run_dir(run_id: str) -> Path:
    return state_dir() / "runs" / run_id


def new_run_id() -> str:
    """Sorts by time, short enough to type a prefix of: `20261122-020648-k3f9`."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + "".join(secrets.choice(alphabet) for _ in range(4))


def open_store(where: str | None = None) -> RunStore:
    """The record: a file's path or the address of a PostgreSQL database, by default runs.db in the state folder."""
    if where and where.startswith(("postgresql:", "postgres:")):
        from stockade.store.postgres import PostgresStore

        return PostgresStore(where)
    from stockade.store.sqlite import SQLiteStore

    return SQLiteStore(Path(where) if where else state_dir() / "runs.db")


async def recover_store(damaged: str | None, new: str | None) -> "Recovered":
    """What is readable of a SQLite record, into a new one beside it. Errors are those of store.recover."""
    from stockade.store.recover import recover

    if damaged and damaged.startswith(("postgresql:", "postgres:")):
        raise UsageError("only a record in a file can be recovered", "PostgreSQL has pg_dump and its backups")
    path = Path(damaged) if damaged else state_dir() / "runs.db"
    return await recover(path, Path(new) if new else path.with_name(f"{path.name}.recovered"))


def find_bot(name: str) -> BotSpec:
    """A built-in bot by its name."""
    if name not in BUILT_IN:
        raise UsageError(f"there is no bot {name!r}", "the bots are " + ", ".join(BUILT_IN))
    return BUILT_IN[name]


def list_bots() -> tuple[BotSpec, ...]:
    return tuple(BUILT_IN.values())


def parse_folder(text: str, default: FolderMode, inside: str) -> FolderRule:
    """`PATH` or `PATH:MODE`. A path that itself ends in `:ro` is written with its mode after it."""
    path, _, mode = text.rpartition(":")
    chosen = _MODES.get(mode, default)
    if mode not in _MODES:
        path = text
    if not path or "\0" in path:
        raise UsageError(f"--folder {text!r} names no folder", "write --folder PATH or --folder PATH:ro")
    return FolderRule(host=str(Path(path).expanduser().absolute()), mode=chosen, inside=inside)


def make_policy(options: Options, default_mode: FolderMode) -> Policy:
    """The policy of the flags. The first folder is /workspace, others are /folders/NAME."""
    folders: list[FolderRule] = []
    for number, text in enumerate(options.folder):
        rule = parse_folder(text, default_mode, WORKSPACE)
        folders.append(rule if not number else rule.model_copy(update={"inside": f"/folders/{Path(rule.host).name}"}))
    if len({rule.inside for rule in folders}) != len(folders):
        raise UsageError("two folders have the same name", "rename one of them, or mount their parent")
    return Policy(
        folders=tuple(folders),
        copies=tuple(_copy_rule(text) for text in options.copy_in),
        network=_network(options.net),
        limits=_limits(options),
        environment=dict(_variable(text) for text in options.env),
        rootfs=options.image,
    )


def _copy_rule(text: str) -> CopyRule:
    host, _, inside = text.partition(":")
    path = Path(host).expanduser().absolute()
    if not path.exists():
        raise UsageError(f"--copy {host}: there is no such file or folder")
    return CopyRule(host=str(path), inside=inside or f"/copied/{path.name}")


def _network(text: str) -> Network:
    if text in ("none", "open"):
        return Network(mode="open" if text == "open" else "none")
    kind, _, hosts = text.partition("=")
    names = tuple(name.strip() for name in hosts.split(",") if name.strip())
    if kind != "allow" or not names:
        raise UsageError(f"--net {text!r} is not understood", "write none, open, or allow=HOST[:PORT],...")
    return Network(mode="allow", hosts=names)


def _limits(options: Options) -> Limits:
    given: dict[str, Any] = {"processes": options.processes, "command_timeout_s": options.command_timeout}
    for name, text in (("memory_bytes", options.memory), ("disk_bytes", options.disk)):
        try:
            given[name] = None if text is None else parse_size(text)
        except ValueError as error:
            raise UsageError(f"--{name.split('_')[0]}: {error}") from None
    return Limits(**{name: value for name, value in given.items() if value is not None})


def _variable(text: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    if not name.replace("_", "a").isalnum() or name[0].isdigit():
        raise UsageError(f"--env {name!r} is not the name of a variable")
    if not given:
        if name not in os.environ:
            raise UsageError(f"--env {name}: the variable is not set here", f"write --env {name}=VALUE")
        value = os.environ[name]
    return name, value


def make_budget(options: Options, default: Budget) -> Budget:
    given = {
        "max_turns": options.max_turns,
        "timeout_s": options.timeout,
        "max_tokens": options.max_tokens,
        "max_cost": options.max_cost,
    }
    return default.model_copy(update={name: value for name, value in given.items() if value is not None})


def pick_protocol(name: str, info: ModelInfo | None = None) -> AnswerProtocol:
    """The protocol of that name; for `auto` what suits the model. UsageError when there is none of that name."""
    from stockade.answers.choice import AUTO, choose, make_protocol

    if name == AUTO:
        name = choose(info) if info is not None else "json"
    return make_protocol(name)


async def suited_protocol(
    answers: str, model: Model, name: str, on_progress: OnProgress | None = None
) -> AnswerProtocol:
    """The protocol that was asked for; for `auto` by what the model was seen to do, which is tried once a model."""
    from stockade.answers.choice import AUTO
    from stockade.models.capabilities import judged

    return pick_protocol(answers, await judged(model, name, on_progress) if answers == AUTO else None)


def check_task(task: str) -> str:
    """The task without control characters a terminal or template could trip over."""
    if not task.strip():
        raise UsageError("the task is empty", "stockade run TASK, or - for standard input")
    if len(task.encode(errors="replace")) > MAX_TASK_BYTES:
        raise UsageError(f"the task is larger than {MAX_TASK_BYTES} bytes", "put it in a file and use --copy")
    return "".join(char for char in task if char in "\n\t" or (char >= " " and char != "\x7f"))


async def prepare_sandbox(policy: Policy, backend: str, base: Path, on_progress: OnProgress | None = None) -> Sandbox:
    """open_sandbox in a thread: cancelled, it ends between two files that it copies, and leaves none."""
    from stockade.sandboxes.stoppable import stoppable

    return await stoppable(lambda progress: open_sandbox(policy, backend, base, progress), on_progress)


def open_sandbox(policy: Policy, backend: str, base: Path, on_progress: OnProgress | None = None) -> Sandbox:
    """A sandbox for `policy`, its layers under `base`. Raises before anything runs when it cannot be held.

    Blocks while a folder is copied.
    """
    if backend in ("auto", "bubblewrap"):
        return _bubblewrap(policy, base, on_progress)
    if backend in ("docker", "podman"):
        from stockade.sandboxes.container import ContainerSandbox

        return ContainerSandbox.prepared(policy, base, "docker" if backend == "docker" else "podman", on_progress)
    if backend == "gvisor":
        from stockade.sandboxes.gvisor import GVisorSandbox

        return GVisorSandbox.prepared(policy, base, on_progress)
    if backend == "unconfined":
        from stockade.sandboxes.unconfined import UnconfinedSandbox

        return UnconfinedSandbox.prepared(policy, base, on_progress)
    raise UsageError(f"there is no sandbox {backend!r}", "choose bubblewrap, docker, podman, gvisor or unconfined")


def _bubblewrap(policy: Policy, base: Path, on_progress: OnProgress | None) -> Sandbox:
    from stockade.sandboxes.bubblewrap import BubblewrapSandbox, prepare_layers

    if policy.rootfs and not Path(policy.rootfs).is_dir():
        raise UsageError(
            f"--image {policy.rootfs}: bubblewrap takes a root file system directory",
            "images are for docker and podman",
        )
    return BubblewrapSandbox(policy, prepare_layers(policy, base, on_progress), base)


def reviewer() -> Reviewer:
    from stockade.sandboxes.folders import Review

    return Review()


def probe() -> "Sequence[Finding]":
    """What this machine can hold, tried live."""
    from stockade.sandboxes.others import other_backends
    from stockade.sandboxes.probe import probe as run_probe

    return [*run_probe(), *other_backends()]


def clean(recorded: Collection[str], alive: Callable[[str], bool]) -> list[str]:
    """Removes what killed runs left; a line for each thing. `recorded` are the ids of the runs on record."""
    from stockade.models.warm import stop_all_idle
    from stockade.sandboxes.leftovers import clean as found
    from stockade.sandboxes.others import sweep_others

    lines = found(state_dir() / "runs", recorded, alive)
    lines += [f"removed {name}" for name in sweep_others()]
    return lines + [f"ended the model server of {server.alias}, which nobody used" for server in stop_all_idle()]


async def open_model(options: Options, on_progress: OnProgress | None) -> tuple[Model, str, str | None]:
    """The model, its full name, and a line on why this one where the choice was ours."""
    from stockade.models.resolve import open_model

    return await open_model(options.model, model_settings(options), on_progress)


def model_settings(options: Options) -> "ModelSettings":
    """How an embedded model is loaded."""
    from stockade.models.settings import ModelSettings

    more = options.load_more()
    if "lora" in more:
        more["lora"] = str(Path(more["lora"]).expanduser().absolute())
        if not Path(more["lora"]).is_file():
            raise UsageError(f"--lora {options.lora}: there is no such file")
    return ModelSettings(
        ctx_size=options.ctx_size,
        threads=options.threads,
        gpu_layers=options.gpu_layers,
        more=more,
        keep_warm_s=options.keep_warm_s,
        llama_server=options.llama_server,
    )


async def prepare(
    options: Options,
    store: RunStore,
    on_event: OnEvent | None = None,
    on_text: OnText | None = None,
    on_progress: OnProgress | None = None,
) -> Prepared:
    """Everything of a run but its start. Raises UsageError, PolicyNotEnforceable, SandboxFailed or ModelFailed."""
    spec = find_bot(options.bot)
    task = check_task(options.task)
    policy = make_policy(options, spec.folder_mode)
    redactor = known(os.environ, policy.environment, options.secret)
    on_event, on_text = watched(redactor, on_event, on_text)
    pick_protocol(options.answers)
    run_id = new_run_id()
    try:
        sandbox = await prepare_sandbox(policy, options.sandbox, run_dir(run_id), on_progress)
        model, name, note = await open_model(options, on_progress)
        budget = make_budget(options, spec.budget)
        if budget.max_cost and not model.info.priced:
            raise UsageError(
                f"--max-cost cannot be kept: nobody says what {name} costs",
                "write it into prices.toml (docs/models.md)",
            )
        protocol = await suited_protocol(options.answers, model, name, on_progress)
    except BaseException:
        _forget(run_id)
        raise
    started = RunStarted(
        at=time.time(),
        version=__version__,
        run_id=run_id,
        task=task,
        bot=spec.name,
        model=name,
        answers=protocol.name,
        sandbox=sandbox.backend,
        policy=policy,
        budget=budget,
        sampling=options.sampling(local=model.info.local),
        system_prompt=opening(spec, protocol, policy),
        check=options.check,
        options=options.model_dump(include=LOADING, exclude_none=True),
    )
    parts = make_parts(
        run_id,
        spec,
        model=model,
        protocol=protocol,
        sandbox=sandbox,
        store=store,
        on_event=on_event,
        on_text=on_text,
        redactor=redactor,
    )
    if hidden := redactor.names(task):
        told = f"the task holds a secret ({', '.join(hidden)}), which the model does not see: give it with --env"
        note = f"{told}. {note}" if note else told
    return Prepared(started, parts, note)


def _forget(run_id: str) -> None:
    """Remove what was prepared for a run that will not begin."""
    from stockade.sandboxes.folders.discard import remove_tree

    if run_dir(run_id).exists():
        remove_tree(run_dir(run_id))


async def start(prepared: Prepared) -> RunFinished:
    """The run to its end, as loop.run.run or loop.resume.resume say. RunTaken when another process drives it."""
    from stockade.sandboxes.keeping import forget_holder

    run_id, store = prepared.started.run_id, prepared.parts.store
    async with store.driving(run_id):
        try:
            if prepared.resumed is None:
                return await run(prepared.started, prepared.parts)
            if await store.length(run_id) != len(prepared.history):
                raise UsageError(f"run {run_id} went on in another process", "stockade runs show")
            if prepared.restore is not None:
                await to_thread.run_sync(prepared.restore)
            return await resume(prepared.history, prepared.resumed, prepared.parts)
        finally:
            forget_holder(run_dir(run_id))


def make_parts(
    run_id: str,
    spec: BotSpec,
    *,
    model: Model,
    protocol: AnswerProtocol,
    sandbox: Sandbox,
    store: RunStore,
    on_event: OnEvent | None,
    on_text: OnText | None,
    redactor: Redactor,
    names: Sequence[str | None] = (),
) -> Parts:
    """The adapters of a run that begins or goes on; its files are kept turn by turn, from the snapshots `names` on."""
    from stockade.sandboxes.keeping import LayerKeeper, note_holder

    def heard(event: RunEvent) -> None:
        if isinstance(event, SandboxStarted):
            note_holder(run_dir(run_id), getattr(sandbox, "host_pid", None))
        if on_event is not None:
            on_event(event)

    return Parts(
        model=model,
        protocol=protocol,
        sandbox=sandbox,
        store=store,
        clock=SystemClock(),
        tools=spec.tools,
        reviewer=reviewer(),
        on_event=heard,
        on_text=on_text,
        redactor=redactor,
        keeper=LayerKeeper(sandbox.layers, names, limit_bytes=KEPT_BYTES),
    )


def list_models() -> "Sequence[ModelEntry]":
    """What is on this machine and what could be fetched. Blocking, no network."""
    from stockade.models.listing import list_models as found

    return found()


def model_info(name: str) -> "ModelEntry":
    """One model. UsageError or ModelUnavailable when nothing is known of it."""
    from stockade.models.listing import model_info as found

    return found(name)


Decision = Literal["apply", "discard", "keep"]

__all__ = ["Decision", "FolderLayer", "Options", "Prepared", "open_store", "prepare", "run_dir", "state_dir"]
