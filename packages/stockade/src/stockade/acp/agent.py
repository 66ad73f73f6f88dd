"""Implements acp's Agent: what an editor may ask for, by session. What is wrong with a request is its answer.

Neither fs/* nor terminal/* of the editor are used: they act outside of the sandbox.
"""

import functools
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from os.path import isdir
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import anyio
from acp import PROTOCOL_VERSION, RequestError
from acp.helpers import update_available_commands, update_current_mode
from acp.schema import (
    AgentCapabilities,
    AvailableCommand,
    ClientCapabilities,
    CloseSessionResponse,
    ConfigOptionUpdate,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionMode,
    SessionModeState,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    Usage,
)
from anyio.abc import TaskGroup

from stockade import __version__
from stockade.acp.asking import MODES, Mode
from stockade.acp.outbox import Outbox
from stockade.acp.prompts import task_of
from stockade.acp.session import COMMANDS, Session, Turn, stop_reason
from stockade.acp.story import Story
from stockade.acp.wording import say
from stockade.core.errors import StockadeError, UsageError
from stockade.core.events import RunStarted
from stockade.core.ports import RunStore
from stockade.core.secrets import view_of
from stockade.core.text import one_line
from stockade.loop.state import fold
from stockade.run_lock import is_locked
from stockade.runtime.bots import find_bot, with_defaults, working_folders
from stockade.runtime.records import new_run_id
from stockade.runtime.resume import make_branch
from stockade.runtime.settings import Settings, load

if TYPE_CHECKING:
    from acp import Client

P = ParamSpec("P")
T = TypeVar("T")
Models = Callable[[], Awaitable[Sequence[tuple[str, str]]]]
"""Models that can be chosen: what each is named, and a few words on it."""
_PAGE, MAX_SESSIONS = 50, 32
_AUTO = "auto"


def answered(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """What Stockade has against a request is the error that it is answered with; nobody sees a traceback."""

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except UsageError as error:
            raise RequestError(-32602, str(error)) from None
        except StockadeError as error:
            raise RequestError(-32603, str(error)) from None
        except (RequestError, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 (of one request; the others go on)
            say(f"this is a bug in Stockade: {type(error).__name__}: {error}")
            raise RequestError(-32603, f"{type(error).__name__}: {error}") from None

    return call


class StockadeAgent:
    """`given`: the flags that it was started with. `models`: asked once, when a first session is begun."""

    def __init__(
        self, given: Mapping[str, Any], store: RunStore, group: TaskGroup, models: Models, environ: Mapping[str, str]
    ) -> None:
        self._given, self._store, self._group, self._ask_models = given, store, group, models
        self._environ = environ
        self._sessions: dict[str, Session] = {}
        self._client: Client | None = None
        self._terminal = self._forms = False
        self._models: Sequence[tuple[str, str]] | None = None

    def on_connect(self, conn: "Client") -> None:
        self._client = conn

    async def close(self) -> None:
        """Every run is closed in order."""
        async with anyio.create_task_group() as group:
            for session in self._sessions.values():
                group.start_soon(session.close)

    # Before a session

    @answered
    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **kwargs: Any,
    ) -> InitializeResponse:
        can = client_capabilities
        if not isinstance(can, ClientCapabilities):  # None, or the SDK's dict for what was no object
            can = ClientCapabilities()
        self._terminal = bool((can.field_meta or {}).get("terminal_output"))
        self._forms = can.elicitation is not None and can.elicitation.form is not None
        lifecycle = SessionCapabilities(
            list=SessionListCapabilities(),
            close=SessionCloseCapabilities(),
            resume=SessionResumeCapabilities(),
            fork=SessionForkCapabilities(),
            additional_directories=SessionAdditionalDirectoriesCapabilities(),
        )
        return InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION) or PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                session_capabilities=lifecycle,
            ),
            agent_info=Implementation(name="stockade", title="Stockade", version=__version__),
            auth_methods=[],
        )

    @answered
    async def authenticate(self, method_id: str, **kwargs: Any) -> None:
        raise UsageError("nobody has to sign in here: whoever starts this process is its user")

    # Sessions

    @answered
    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **kwargs: Any,
    ) -> NewSessionResponse:
        settings = self._settings(cwd, additional_directories or ())
        session = self._opened(new_run_id(), settings, mcp_servers)
        await self._know_models()
        self._offer_commands(session)
        return NewSessionResponse(session_id=session.id, modes=_modes(session), config_options=self._options(session))

    @answered
    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[Any] | None = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> LoadSessionResponse:
        session = await self._again(cwd, session_id, mcp_servers, additional_directories or ())
        if session.began:
            await self._replay(session)
        self._offer_commands(session)
        return LoadSessionResponse(modes=_modes(session), config_options=self._options(session))

    @answered
    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **kwargs: Any,
    ) -> ResumeSessionResponse:
        session = await self._again(cwd, session_id, mcp_servers, additional_directories or ())
        self._offer_commands(session)
        return ResumeSessionResponse(modes=_modes(session), config_options=self._options(session))

    @answered
    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **kwargs: Any,
    ) -> ForkSessionResponse:
        """As it is at the end of its last turn, files included."""
        events = await self._store.events(session_id)
        run_id, _ = await make_branch(self._store, events, fold(events).turns)
        session = await self._again(cwd, run_id, mcp_servers, additional_directories or ())
        self._offer_commands(session)
        return ForkSessionResponse(session_id=run_id, modes=_modes(session), config_options=self._options(session))

    @answered
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> ListSessionsResponse:
        found = [one for one in await self._store.runs(folder=cwd) if one.problem is None and one.folder]
        first = next((place + 1 for place, one in enumerate(found) if one.run_id == cursor), 0)
        page = found[first : first + _PAGE]
        sessions = [
            SessionInfo(
                session_id=one.run_id, cwd=one.folder, title=one_line(one.task, 100),
                updated_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(one.started)),
            )
            for one in page
        ]  # fmt: skip
        more = page[-1].run_id if page and first + _PAGE < len(found) else None
        return ListSessionsResponse(sessions=sessions, next_cursor=more)

    @answered
    async def close_session(self, session_id: str, **kwargs: Any) -> CloseSessionResponse:
        await self._session(session_id).close()
        del self._sessions[session_id]
        return CloseSessionResponse()

    @answered
    async def set_session_mode(self, session_id: str, mode_id: str, **kwargs: Any) -> SetSessionModeResponse:
        session = self._session(session_id)
        self._use_mode(session, mode_id)
        session.outbox.put(
            ConfigOptionUpdate(session_update="config_option_update", config_options=self._options(session))
        )
        return SetSessionModeResponse()

    @answered
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **kwargs: Any
    ) -> SetSessionConfigOptionResponse:
        session = self._session(session_id)
        if config_id == "mode":
            self._use_mode(session, str(value))
            session.outbox.put(update_current_mode(session.mode))
        elif config_id == "model":
            if value not in [name for name, _ in self._choices(session)]:
                raise UsageError(f"{value!r} is none of the models to choose from", "start stockade acp with --model")
            session.use_model(str(value))
        else:
            raise UsageError(f"there is no option {config_id!r}", "there are mode and model")
        return SetSessionConfigOptionResponse(config_options=self._options(session))

    # Turns

    @answered
    async def prompt(self, session_id: str, prompt: list[Any], **kwargs: Any) -> PromptResponse:
        session = self._session(session_id)
        task, images = task_of(prompt, session.paths)
        turn = await session.prompt(task, images, self._group)
        if turn.failed is not None:
            raise turn.failed
        if turn.finished is not None and turn.finished.status == "failed" and not turn.cancelled:
            raise RequestError(-32603, f"{turn.finished.reason}: {turn.finished.detail}")
        return PromptResponse(stop_reason=stop_reason(turn), usage=_usage(turn))

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        if (session := self._sessions.get(session_id)) is not None:
            await session.cancel()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """None is known."""

    # What these have in common

    def _session(self, session_id: str) -> Session:
        if (session := self._sessions.get(session_id)) is None:
            raise UsageError(f"there is no session {session_id!r} here", "session/new begins one, session/load goes on")
        return session

    def _settings(self, cwd: str, more: Sequence[str]) -> Settings:
        """Of a session in that folder: what `stockade chat` there would have, and no other folder than is named."""
        folders = (cwd, *more)
        if not all(Path(one).is_absolute() and "\0" not in one for one in folders):
            raise UsageError("the folders of a session are absolute paths")
        if not isdir(cwd):
            raise UsageError(f"there is no folder {cwd!r} here")
        given = {key: value for key, value in self._given.items() if key not in ("folder", "no_folder")}
        options = load(given, self._environ, Path(cwd)).options
        asked = (working_folders(Path(one), options.bot, options.sandbox) for one in folders)
        chosen = tuple(folder for one in asked for folder in one)
        if not chosen:
            raise UsageError(f"the sandbox {options.sandbox} is another machine's: it has no folder of the editor's")
        return load({**given, "folder": (*chosen, *self._given.get("folder", ()))}, self._environ, Path(cwd))

    def _opened(self, run_id: str, settings: Settings, servers: list[Any] | None, *, began: bool = False) -> Session:
        if len(self._sessions) >= MAX_SESSIONS:
            raise UsageError(f"{MAX_SESSIONS} sessions are open", "close one of them")
        assert self._client is not None
        options = settings.options
        if not began:  # else what is on record holds
            options = with_defaults(options, find_bot(options.bot))
        outbox = Outbox(self._client, run_id)
        mode = cast(Mode, options.approve.partition("=")[0])
        session = Session(
            run_id, options, mode, outbox, self._store, began=began, forms=self._forms, terminal=self._terminal
        )
        session.notes += settings.notes
        if servers:
            names = ", ".join(one_line(one.name, 50) for one in servers)
            session.notes.append(f"MCP servers of the editor are not used here: {names}. --mcp FILE runs some inside")
        self._sessions[run_id] = session
        self._group.start_soon(outbox.send)
        return session

    async def _again(self, cwd: str, run_id: str, servers: list[Any] | None, more: Sequence[str]) -> Session:
        """A run on record as a session, which one here that is open already is not; one that has not begun stays."""
        if (before := self._sessions.get(run_id)) is not None and not before.began:
            return before
        (first,) = await self._store.events(run_id, limit=1)
        assert isinstance(first, RunStarted)
        if before is not None:
            del self._sessions[run_id]
            await before.close()
        if is_locked(run_id) or await self._store.driver(run_id) is not None:
            raise UsageError(f"run {run_id} is under way in another process", "wait for its end")
        place = first.policy.folder.host if first.policy.folder is not None else ""
        if not (place and _is_same(place, cwd)):
            raise UsageError(f"run {run_id} works in {place or 'no folder'}, not in {cwd}")
        await self._know_models()
        session = self._opened(run_id, self._settings(cwd, more), servers, began=True)
        session.model = first.model
        session.use_mode(first.approve)
        return session

    async def _replay(self, session: Session) -> None:
        """The whole conversation, as it was."""
        place, story = 0, Story(session.paths, terminal=self._terminal, replayed=True)
        redactor = None
        while page := await self._store.events(session.id, first=place, limit=_PAGE):
            for event in page:
                if redactor is None:
                    assert isinstance(event, RunStarted)
                    redactor = view_of(event, self._environ, session.options.redact).redactor
                session.outbox.put(*story.of(redactor.event(event)))
            place += len(page)
            await session.outbox.flushed()

    def _use_mode(self, session: Session, mode: str) -> None:
        if mode not in MODES:
            raise UsageError(f"there is no mode {mode!r}", f"there are {', '.join(MODES)}")
        session.use_mode(mode)

    async def _know_models(self) -> None:
        if self._models is None:
            self._models = await self._ask_models()

    def _choices(self, session: Session) -> list[tuple[str, str]]:
        known = dict(self._models or ())
        return [(name, known.get(name, "")) for name in dict.fromkeys((session.model, session.options.model, *known))]

    def _options(self, session: Session) -> list[Any]:
        modes = [
            SessionConfigSelectOption(value=mode, name=name, description=about) for mode, (name, about) in MODES.items()
        ]
        models = [
            SessionConfigSelectOption(
                value=name, name="chosen by Stockade" if name == _AUTO else name, description=about or None
            )
            for name, about in self._choices(session)
        ]
        return [
            SessionConfigOptionSelect(
                type="select", id="mode", name="Mode", category="mode", current_value=session.mode, options=modes
            ),
            SessionConfigOptionSelect(
                type="select", id="model", name="Model", category="model", current_value=session.model, options=models
            ),
        ]

    def _offer_commands(self, session: Session) -> None:
        commands = (AvailableCommand(name=name, description=about) for name, about in COMMANDS.items())
        session.outbox.put(update_available_commands(commands))


def _is_same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _modes(session: Session) -> SessionModeState:
    modes = [SessionMode(id=mode, name=name, description=about) for mode, (name, about) in MODES.items()]
    return SessionModeState(current_mode_id=session.mode, available_modes=modes)


def _usage(turn: Turn) -> Usage | None:
    if turn.finished is None:
        return None
    usage = turn.finished.usage
    return Usage(
        total_tokens=usage.prompt_tokens + usage.completion_tokens, input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens, thought_tokens=usage.thinking_tokens,
        cached_read_tokens=usage.cached_tokens,
    )  # fmt: skip
