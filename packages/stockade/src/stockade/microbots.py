"""Microbots' own names, arguments and results: what was written for it runs sealed, with its import changed.

`WritingBot(model="azure-openai/my-gpt5", folder_to_mount="app").run("Fix the build", timeout_in_seconds=600)`. What a
READ_WRITE bot wrote is in the folder when its run ends, as there; here `stockade undo` takes it back, and what would
run on this machine later (hooks, shell start-up files) is left out, as `result.error` says (docs/microbots.md).
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from os.path import expanduser
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Self

import anyio
from anyio import to_thread
from pydantic import ValidationError

from stockade.api import bots
from stockade.api.arguments import AnyTool, Folder
from stockade.api.results import Exchange, RunResult
from stockade.core.data import Data
from stockade.core.errors import StockadeError, UsageError
from stockade.core.messages import Message, ModelRequest
from stockade.core.ports import Model
from stockade.models.providers import PROVIDERS
from stockade.runtime.models import model_of, model_settings, open_model
from stockade.runtime.policy import make_policy
from stockade.runtime.spec import RunSpec, spec_of
from stockade.runtime.toolchains import own_toolchain
from stockade.tools.tool_files import ToolDefinition
from stockade_sandbox import Sandbox
from stockade_sandbox.policy import CopyRule, FolderRule, Policy, policy_of

__all__ = ["LLM", "AgentBoss", "Bot", "BotRunResult", "BrowsingBot", "CmdReturn", "Environment", "LLMAskResponse",
           "LogAnalysisBot", "MicroBot", "Mount", "MountType", "PermissionLabels", "ReadingBot", "ToolDefinition",
           "WritingBot"]  # fmt: skip
Permission = Literal["READ_ONLY", "READ_WRITE"]


class PermissionLabels(StrEnum):
    """Its names of the two."""

    READ_ONLY = "READ_ONLY"
    READ_WRITE = "READ_WRITE"


class MountType(StrEnum):
    """Of a Mount."""

    MOUNT = "mount"
    COPY = "copy"


TokenProvider = Callable[[], str]
_PROVIDERS = {"azure-openai": "azure", "ollama-local": "ollama"}
_MODES = {"READ_ONLY": "ro", "READ_WRITE": "overlay"}
_PLACE = PurePosixPath("/workdir")
_TRIES = 3
_FORM = """Answer with nothing but JSON: {"task_done": true or false, "thoughts": "...", "command": "..."}. While the \
task is not done, `command` is one command for a shell; when it is, `command` is empty and `thoughts` the answer."""


def _mode(permission: str | None) -> Any:
    if permission not in _MODES:
        raise UsageError(f"there is no permission {permission!r}", "READ_ONLY or READ_WRITE")
    return _MODES[permission]


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of this machine as the bot has it. `sandbox_path`: a file goes into it where it ends with `/`.
    `mount_type`: `mount`, or `copy` of which nothing comes back.
    """

    host_path: str | Path
    sandbox_path: str
    permission: Permission = "READ_ONLY"
    mount_type: Literal["mount", "copy"] = "mount"

    def __post_init__(self) -> None:
        if not PurePosixPath(self.sandbox_path).is_absolute():
            raise ValueError(f"sandbox_path must be an absolute path. Given: {self.sandbox_path}")
        if str(self.mount_type).lower() not in ("mount", "copy"):
            raise UsageError(f"there is no mount_type {self.mount_type!r}", "mount or copy")
        _mode(self.permission)

    @property
    def host(self) -> str:
        return str(Path(expanduser(self.host_path)).absolute())

    @property
    def inside(self) -> str:
        into = self.sandbox_path.endswith("/") and Path(self.host).is_file()
        return str(PurePosixPath(self.sandbox_path, Path(self.host).name if into else ""))


def _mount(folder: Mount | Folder | str | Path, permission: str | None) -> FolderRule:
    """UsageError where it is to be copied: a bot works in its folder itself."""
    if isinstance(folder, Mount):
        if str(folder.mount_type).lower() != "mount":
            raise UsageError("Only MOUNT mount type is supported for folder_to_mount")
        return FolderRule(host=folder.host, mode=_mode(folder.permission), inside=folder.inside)
    mode = folder.mode if isinstance(folder, Folder) else _mode(permission or "READ_WRITE")
    host = Path(expanduser(folder.path if isinstance(folder, Folder) else folder)).absolute()
    return FolderRule(host=str(host), mode=mode, inside=str(_PLACE / host.name))


@dataclass(frozen=True, slots=True)
class CmdReturn:
    """What a command did. 124 is the return code of one that took too long."""

    return_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout

    @property
    def error(self) -> str:
        return self.stderr


class Environment:
    """`Environment("data", "READ_ONLY").execute("ls")`: a sandbox that starts when it is first used, with Microbots'
    calls; `with` ends it. What was written to a READ_WRITE folder is in it when it was ended.
    """

    def __init__(
        self, folder_to_mount: Mount | Folder | str | Path | None = None, permission: Permission | None = None
    ) -> None:
        if permission is not None:
            _mode(permission)
        rules = () if folder_to_mount is None else (_mount(folder_to_mount, permission),)
        self.box = Sandbox(policy=replace(policy_of(None, ()), folders=rules, streams="separate"))
        self._lock, self._ended = threading.Lock(), False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Does nothing when it runs."""
        with self._lock:
            if self.box.portal is None and not self._ended:
                self.box.__enter__()

    def execute(self, command: str, timeout: float | None = 300, sensitive: bool = False) -> CmdReturn:
        """A command in the persistent shell: what it changes there stays. `timeout` in seconds. Nothing here writes a
        log, of a `sensitive` command neither.
        """
        self.start()
        done = self.box.exec(shell=command, timeout=timeout)
        return CmdReturn(done.exit_code, done.text, done.stderr.decode(errors="backslashreplace"))

    def kill(self) -> None:
        """Ends it and all that runs in it, for good. Does nothing the second time."""
        with self._lock:
            self._ended = True
            if self.box.portal is not None:
                try:
                    self.box.apply()
                finally:
                    self.box.__exit__(None, None, None)

    stop = kill


@dataclass(frozen=True, slots=True)
class BotRunResult:
    """`status`: True when done, and the check passed where there was one. `error`: why not, or what was not applied.
    `log`: the task, thoughts, actions, outputs and the answer, in order. `run`: all else, as of stockade's own bots.
    """

    status: bool
    result: str | None
    error: str | None
    log: tuple[Exchange, ...] = field(default=(), repr=False)
    run: RunResult | None = field(default=None, repr=False)


class Bot(bots.Bot):
    """A bot with Microbots' arguments; further ones are those of stockade's own bots (`check`, `net`, `sandbox`, ...).

    `model`: `PROVIDER/NAME`, or {"provider": ..., "model": ...}. `token_provider` gives a bearer token, and is asked at
    each run.
    """

    def __init__(
        self,
        name: str | None = None,
        Bot_type: str | None = None,
        permission: Permission | None = None,
        model: str | Mapping[str, str] | Model = "auto",
        system_prompt: str | None = None,
        environment: Environment | Sandbox | None = None,
        additional_tools: Sequence[AnyTool] | None = None,
        folder_to_mount: Mount | Folder | str | Path | None = None,
        *,
        bot_type: str | None = None,
        token_provider: TokenProvider | None = None,
        **options: Any,
    ) -> None:
        if token_provider is not None and not callable(token_provider):
            raise UsageError("token_provider is a function without arguments that gives a token")
        kind = (Bot_type or bot_type or self.kind).upper().removesuffix("_BOT")
        super().__init__(
            name,
            kind,  # type: ignore[arg-type]
            None,
            _model_name(model) if isinstance(model, str | Mapping) else model,
            system_prompt,
            environment.box if isinstance(environment, Environment) else environment,
            additional_tools or (),
            **options,
        )
        self._token, self._place = token_provider, environment if isinstance(environment, Environment) else None
        reads = self.spec.folder_mode == "ro"
        wanted = permission or ("READ_ONLY" if reads else None)
        self._mounted = None if folder_to_mount is None else _mount(folder_to_mount, wanted)

    def run(  # type: ignore[override]
        self,
        task: str,
        additional_mounts: Sequence[Mount] | None = None,
        max_iterations: int = 20,
        timeout_in_seconds: float = 200,
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> BotRunResult:
        """The task to its end, of `timeout_in_seconds` (or `timeout`) and so many turns of the model."""
        limit_s = timeout or timeout_in_seconds
        if self._place is not None:
            self._place.start()
        self._prepare(task, additional_mounts or (), options)
        result = self._begin(task, limit_s, max_iterations, options)
        error = result.error
        if result.reason == "time":
            error = f"Timeout of {limit_s:g} seconds reached"
        if self.environment is None:
            error = _applied(result) or error
        return BotRunResult(bool(result), result.answer, error, result.log, result)

    def _begin(self, task: str, timeout: float, max_iterations: int, options: dict[str, Any]) -> RunResult:
        return super().run(task, timeout, max_iterations, **options)

    def _prepare(self, task: str, mounts: Sequence[Mount], options: Mapping[str, Any]) -> None:
        """The policy, with folders at the places that they were given, and the model with a new token."""
        spec = self._spec(task, self._given(None, None, None, options))
        if (self.environment is None and self._mounted is not None) or mounts:
            policy = own_toolchain(spec, self._policy(spec, mounts))
            self._objects = self._objects.but(policy=policy)
        if self._token is not None:
            self._objects = self._objects.but(model=anyio.run(_with_token, spec, self._token))

    def _policy(self, spec: RunSpec, mounts: Sequence[Mount]) -> Policy:
        if self.environment is not None:
            raise UsageError("additional_mounts need a sandbox of the bot's own", "leave the environment out")
        copies = [CopyRule(host=one.host, inside=one.inside) for one in mounts]
        for copy in copies:
            if not Path(copy.host).exists():
                raise ValueError(f"Failed to copy additional mount {copy.host}: it does not exist")
        shared = () if self._mounted is None else (f"{self._mounted.host}:{self._mounted.mode}",)
        own = make_policy(spec.model_copy(update={"folder": shared}), self.spec.folder_mode)
        folders = own.folders if self._mounted is None else (self._mounted, *own.folders[1:])
        return replace(own, folders=folders, copies=(*own.copies, *copies))


MicroBot = Bot


class ReadingBot(Bot):
    """Reads a folder, and cannot write."""

    kind = "READING"


class WritingBot(Bot):
    """Writes in a folder."""

    kind = "WRITING"


class BrowsingBot(Bot):
    """Uses a browser in its sandbox; `net="HOST"` says where it may go."""

    kind = "BROWSING"


class AgentBoss(Bot):
    """Hands parts of its task to helpers in its sandbox."""

    kind = "BOSS"


class LogAnalysisBot(Bot):
    """Finds the cause of a failure in a log, with the code at hand."""

    kind = "LOG_ANALYSIS"

    def run(  # type: ignore[override]
        self,
        file_name: str,
        max_iterations: int = 20,
        timeout_in_seconds: float = 300,
        user_prompt: str | None = None,
        **options: Any,
    ) -> BotRunResult:
        """`file_name` is the path of the log; `user_prompt` is context: data, not orders."""
        log = bots.log_path(file_name)
        place = f"/var/log/{log.name}"
        mounts = [Mount(log, place, mount_type="copy")]
        words = bots.log_task(place, user_prompt)
        return super().run(words, mounts, max_iterations, timeout_in_seconds, **options)


class LLMAskResponse(Data):
    """What a model says in Microbots' form."""

    task_done: bool
    thoughts: str
    command: str | None = ""


class LLM:
    """A model to talk to, in Microbots' form: `LLM("Be brief.", deployment_name="my-gpt5").ask("Where am I?")`. The
    conversation is kept, the system prompt stays.

    `deployment_name` is a name of Azure's; `PROVIDER/NAME` any other. Options are those of the command line by name.
    """

    def __init__(self, system_prompt: str = "", deployment_name: str = "auto", **options: Any) -> None:
        name = deployment_name if "/" in deployment_name or deployment_name == "auto" else f"azure/{deployment_name}"
        self._options = spec_of({**options, "model": _model_name(name)})
        self._system = Message(role="system", content=f"{system_prompt}\n\n{_FORM}".strip())
        self._said: list[Message] = []
        self._model: Model | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far, the system prompt first."""
        return (self._system, *self._said)

    async def aask(self, message: str) -> str:
        """The answer to a message, both of which are kept. ModelFailed, and nothing kept, when there is none."""
        if self._model is None:
            self._model, _, _ = await model_of(self._options, None)
        asked = Message(role="user", content=message)
        sampling = self._options.sampling(local=self._model.info.local)
        if (skip := getattr(self._model, "skip", None)) is not None:
            skip(len(self._said) // 2)  # a script goes on where it was
        async with self._model as model:
            answer = await model.ask(ModelRequest(messages=(*self.messages, asked), sampling=sampling))
        self._said += [asked, Message(role="assistant", content=answer.content)]
        return answer.content

    def ask(self, message: str) -> LLMAskResponse:
        """The answer; one that is not of the form is asked for again, three times. ValueError then."""
        problem = ""
        for _ in range(_TRIES + 1):
            said = anyio.run(self.aask, f"LLM_RES_ERROR: {problem}\n{_FORM}" if problem else message)
            try:
                answer = LLMAskResponse.model_validate_json(said[said.find("{") : said.rfind("}") + 1])
            except ValidationError as error:
                problem = "; ".join(one["msg"] for one in error.errors(include_url=False, include_input=False))
                continue
            if answer.task_done == bool((answer.command or "").strip()):
                problem = "`command` is empty when the task is done, and else is not"
                continue
            return answer
        raise ValueError(f"the model does not answer in the form: {problem}")

    def clear_history(self) -> None:
        """Forget what was said; the system prompt stays."""
        self._said.clear()


def _model_name(model: str | Mapping[str, str]) -> str:
    """As we name it. ValueError for a provider that there is not."""
    text = model if isinstance(model, str) else "/".join(str(model.get(key, "")) for key in ("provider", "model"))
    provider, slash, name = text.partition("/")
    if text == "auto":
        return text
    if not slash or not provider or not name:
        raise ValueError(f"Model should be in the format <provider>/<model_name>, and is {text!r}")
    return f"{_PROVIDERS.get(provider, provider)}/{name}"


async def _with_token(spec: RunSpec, provide: TokenProvider) -> Model:
    token = await to_thread.run_sync(provide)
    if not isinstance(token, str) or not token.strip():
        raise UsageError("token_provider gave no token: a text that is not empty is wanted")
    provider = spec.model.partition("/")[0]
    if provider not in PROVIDERS:
        raise UsageError(f"{provider} takes no token", f"those that do: {', '.join(PROVIDERS)}")
    keys = PROVIDERS[provider].key_variables
    variable = next((key for key in keys if key.endswith("_TOKEN")), keys[0])
    others = {name: value for name, value in os.environ.items() if name not in keys}
    return (await open_model(spec.model, model_settings(spec), None, {**others, variable: token}))[0]


def _applied(result: RunResult) -> str | None:
    """Why some of it was not."""
    try:
        result.apply()
        left = [change.path for change in result.changes]
    except StockadeError as error:
        return f"not applied: {error}"
    return f"not applied: {', '.join(left)} (stockade runs diff {result.run_id})" if left else None
