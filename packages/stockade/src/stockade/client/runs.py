"""AsyncClient: runs of a server, and what is decided about them."""

import secrets
import tarfile
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, fields
from functools import partial
from os.path import expanduser, isdir
from pathlib import Path
from typing import IO, Any, Literal, Self, TypedDict, TypeVar, Unpack
from urllib.parse import quote

import anyio
from anyio import to_thread
from anyio.from_thread import BlockingPortal
from pydantic import TypeAdapter, ValidationError

from stockade.api.arguments import PERMISSIONS, Permission
from stockade.api.bots import in_loop
from stockade.api.results import RunResult, result_of
from stockade.client.connection import Connection
from stockade.core.errors import Conflict, ServerFailed, UsageError
from stockade.core.events import RunEvent, RunFinished, from_json
from stockade.server.models import (
    Approval,
    Asked,
    Decided,
    Diff,
    FileList,
    Output,
    Run,
    RunLine,
    RunPage,
    State,
    ToolLine,
    Upload,
)
from stockade_sandbox.results import Change, Finding
from stockade_sandbox.stoppable import unwrap_exception_group

T = TypeVar("T")
OnAsked = Callable[[Asked], Awaitable[Approval | str]]
"""Answers for the user: an Approval of an action, words to a question."""
_LIMITS = ("max_turns", "timeout", "max_tokens", "max_cost")
_LOOK_S = 0.5
_PIECE = 256 << 10


class Options(TypedDict, total=False):
    """Of a run. `folder`: one of the server's folders; `upload`: one of this machine's, of which a copy is sent. A
    `key` that was used before is the run that it began. `timeout` in seconds. What the server's user set holds where it
    is less.
    """

    folder: str | None
    upload: str | Path | None
    permission: Permission | None
    bot: str | None
    model: str | None
    check: str | Sequence[str]
    protect: Sequence[str]
    approve: Literal["never", "ask", "rules"] | None
    output_schema: dict[str, Any] | None
    max_turns: int | None
    timeout: float | None
    max_tokens: int | None
    max_cost: float | None
    key: str | None


class AsyncClient:
    """`async with AsyncClient("https://host:8711", token) as client`.

    `token`: its text, or the file that holds it; None: $STOCKADE_TOKEN, else the file $STOCKADE_TOKEN_FILE. `ca`: a PEM
    file of those who vouch for the server; `fingerprint`: what `stockade serve --tls-self-signed` prints. A server that
    is away for less than `patience_s` is no error. UsageError, NotAllowed, ServerUnavailable, ServerFailed.
    """

    def __init__(
        self,
        url: str,
        token: str | Path | None = None,
        *,
        ca: str | Path | None = None,
        fingerprint: str | None = None,
        patience_s: float = 60.0,
    ) -> None:
        self.connection = Connection(url, token, Path(ca) if ca is not None else None, fingerprint, patience_s)
        self.portal: BlockingPortal | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.connection)
            self.portal = await stack.enter_async_context(BlockingPortal())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.portal = None
        await self._stack.aclose()

    async def start(self, task: str, **options: Unpack[Options]) -> "AsyncRun":
        """A run, which is on the server's record and goes on whoever looks at it."""
        asked: dict[str, Any] = {"task": task, **options}
        upload, permission, key = (asked.pop(name, None) for name in ("upload", "permission", "key"))
        if upload is not None:
            asked["upload"] = (await self.upload(upload)).id
        if permission is not None:
            asked["mode"] = PERMISSIONS.get(permission, permission)
        if isinstance(asked.get("check"), str):
            asked["check"] = [asked["check"]]
        asked["limits"] = {name: asked.pop(name) for name in _LIMITS if asked.get(name) is not None}
        found = await self._asked(
            Run, "POST", "/v1/runs", again=True, headers={"Idempotency-Key": key or secrets.token_hex(16)},
            json={name: one for name, one in asked.items() if one is not None},
        )  # fmt: skip
        return self.attach(found.id)

    async def run(
        self, task: str, *, on_event: Callable[[RunEvent], None] | None = None, on_asked: OnAsked | None = None,
        **options: Unpack[Options],
    ) -> RunResult:  # fmt: skip
        """A run to its end: `start`, and AsyncRun.result."""
        return await (await self.start(task, **options)).result(on_event, on_asked)

    def attach(self, id: str) -> "AsyncRun":
        """A run that there is: this asks nobody."""
        return AsyncRun(self, id)

    async def runs(
        self, status: State | None = None, folder: str | None = None, words: str | None = None
    ) -> AsyncGenerator[RunLine]:
        """Newest first. `words`: each of them stands in the task, the answer or a command."""
        cursor: str | None = None
        while True:
            params = {"status": status, "folder": folder, "words": words, "cursor": cursor}
            page = await self._asked(RunPage, "GET", "/v1/runs", params=params)
            for line in page.runs:
                yield line
            if (cursor := page.next) is None:
                return

    async def upload(self, folder: str | Path) -> Upload:
        """A folder of this machine's as it is now. A run works on that copy: what it changes is applied there."""
        with tempfile.TemporaryFile() as packed:
            await to_thread.run_sync(_pack, Path(folder), packed)
            size = packed.tell()
            packed.seek(0)
            headers = {"Content-Length": str(size), "Content-Type": "application/x-tar"}
            return await self._asked(Upload, "POST", "/v1/uploads", content=_pieces(packed), headers=headers)

    async def remove_upload(self, id: str) -> None:
        """With what was applied to it."""
        await self.connection.ask("DELETE", f"/v1/uploads/{quote(id, safe='')}")

    async def models(self) -> list[str]:
        """Names that a run may have; the first is what it has otherwise."""
        return await self._asked(list[str], "GET", "/v1/models")

    async def bots(self) -> list[str]:
        """Names that a run may have."""
        return await self._asked(list[str], "GET", "/v1/bots")

    async def tools(self) -> list[ToolLine]:
        """Tools that bots of the server may have."""
        return await self._asked(list[ToolLine], "GET", "/v1/tools")

    async def doctor(self) -> list[Finding]:
        """What the server's machine can enforce, tried now; for a token of the scope `admin`."""
        return await self._asked(list[Finding], "GET", "/v1/doctor")

    async def _asked(self, kind: type[T], method: str, path: str, **how: Any) -> T:
        answer = await self.connection.ask(method, path, **how)
        try:
            return TypeAdapter(kind).validate_json(answer.content)
        except ValidationError:
            what = f"{self.connection.server} answered {path} as this version does not understand"
            raise ServerFailed(what, "it may be another version of Stockade") from None


class AsyncRun:
    """A run of a server."""

    def __init__(self, client: AsyncClient, id: str) -> None:
        self.client, self.id = client, id
        self._at = f"/v1/runs/{quote(id, safe='')}"

    async def show(self) -> Run:
        """How far it is, or what it came to."""
        return await self._asked(Run, "GET")

    async def events(self, after: int = -1) -> AsyncGenerator[RunEvent]:
        """Its record behind event number `after` (the first has 0), each once and in order, live until nobody drives
        it any more: it ended, or the server was killed and does not go on with it.
        """
        async with aclosing(self._events(after, output=False)) as found:
            async for event in found:
                assert not isinstance(event, Output)
                yield event

    async def live(self, after: int = -1) -> AsyncGenerator[RunEvent | Output]:
        """`events`, and between them what a command writes while it runs."""
        async with aclosing(self._events(after, output=True)) as found:
            async for event in found:
                yield event

    async def _events(self, after: int, *, output: bool) -> AsyncGenerator[RunEvent | Output]:
        params = {"output": "true" if output else None}
        async with aclosing(self.client.connection.events(f"{self._at}/events", after, params)) as found:
            async for number, name, data in found:
                try:
                    event = Output.model_validate_json(data) if name == "output" else from_json(data)
                except ValueError:
                    what = f"event {number} of run {self.id} is a {name} that this version does not understand"
                    raise ServerFailed(what, "the server may be newer than this client") from None
                yield event

    async def result(
        self, on_event: Callable[[RunEvent], None] | None = None, on_asked: OnAsked | None = None
    ) -> RunResult:
        """When it has ended; its changes are decided on at the server. Without `on_asked` somebody else answers what it
        asks. Conflict when nobody drives it any more, and it has not ended.
        """
        seen = list[RunEvent]()
        async with unwrap_exception_group(), anyio.create_task_group() as group:
            if on_asked is not None:
                group.start_soon(self._answer, on_asked)
            async with aclosing(self.events()) as events:
                async for event in events:
                    seen.append(event)
                    if on_event is not None:
                        on_event(event)
            group.cancel_scope.cancel()
        if not seen or not any(isinstance(event, RunFinished) for event in seen):
            raise Conflict(f"run {self.id} was cut off", "await run.resume()", 409)
        local = result_of(self.id, seen, None)
        return RemoteResult(**{one.name: getattr(local, one.name) for one in fields(local)}, remote=self)

    async def _answer(self, on_asked: OnAsked) -> None:
        while True:
            for asked in await self.approvals():
                reply = await on_asked(asked)
                try:
                    if isinstance(reply, str):
                        await self.message(reply, question=asked.number)
                    else:
                        await self.approve(asked.number, reply.allow, note=reply.note, scope=reply.scope)
                except Conflict:  # somebody else was first, or it has ended
                    continue
            await anyio.sleep(_LOOK_S)

    async def approvals(self) -> list[Asked]:
        """What it waits for: actions that are to be allowed, and questions of the bot's."""
        return await self._asked(list[Asked], "GET", "/approvals")

    async def approve(
        self, number: int, allow: bool = True, *, note: str | None = None,
        scope: Literal["once", "session", "always"] = "once",
    ) -> Run:  # fmt: skip
        """The user's word on an action. Not allowed with a `note`: the bot is told why; without one the run ends."""
        reply = Approval(allow=allow, note=note, scope=scope).model_dump(mode="json")
        return await self._asked(Run, "POST", f"/approvals/{number}", json=reply)

    async def message(self, text: str, *, question: int | None = None) -> Literal["answer", "steer", "task"]:
        """What it became: the answer to that question; words for the bot before its next turn; or the next task of a
        run that is over, in the same conversation.
        """
        words = {"text": text} if question is None else {"text": text, "question": question}
        became: dict[str, Literal["answer", "steer", "task"]] = await self._asked(dict, "POST", "/messages", json=words)
        return became["as"]

    async def pause(self) -> Run:
        """What is under way goes on to its end; nothing new begins until `resume`."""
        return await self._asked(Run, "POST", "/pause")

    async def resume(self) -> Run:
        """A run that is paused goes on, or one that was stopped or cut off."""
        return await self._asked(Run, "POST", "/resume")

    async def cancel(self) -> Run:
        """It ends in order; its changes wait to be decided on."""
        return await self._asked(Run, "POST", "/cancel")

    async def rewind(self, turn: int, task: str | None = None) -> "AsyncRun":
        """A new run that is what this one was after a turn, files included, and goes on from there."""
        found = await self._asked(Run, "POST", "/rewind", json={"turn": turn, "task": task})
        return self.client.attach(found.id)

    async def diff(self, *, host: bool = False) -> Diff:
        """What is still to be decided on. `host`: what else than the run changed in the folder, of the same files."""
        return await self._asked(Diff, "GET", "/diff?host=true" if host else "/diff")

    async def files(self, folder: str = "") -> FileList:
        """What is in a folder as the bot sees it, changed or not."""
        return await self._asked(FileList, "GET", f"/files?folder={quote(folder, safe='')}")

    async def read_file(self, path: str) -> str:
        """A file as the run sees it; secrets are masked in it."""
        return (await self.client.connection.ask("GET", f"{self._at}/files/{quote(path)}")).text

    async def read_bytes(self, path: str) -> bytes:
        """A file exactly as the run sees it, of up to 64 MiB, whatever it holds; so what a run made of an
        `upload` comes home. RequestRefused where a secret is in it, or it is no file.
        """
        return (
            await self.client.connection.ask("GET", f"{self._at}/files/{quote(path)}", params={"raw": "true"})
        ).content

    async def apply(
        self, reviewed: Diff | None = None, *, paths: Sequence[str] | None = None, flagged: bool = False,
        merge: bool = False, force: bool = False,
    ) -> Decided:  # fmt: skip
        """Into the folder; again, where it was undone. ReviewOutdated when the changes are not those `reviewed`."""
        chosen = {"paths": None if paths is None else list(paths), "flagged": flagged, "merge": merge, "force": force}
        headers = {"If-Match": "*" if reviewed is None else f'"{reviewed.etag}"'}
        return await self._asked(Decided, "POST", "/apply", json=chosen, headers=headers)

    async def undo(self, *, paths: Sequence[str] | None = None, force: bool = False) -> Decided:
        """What was applied is taken back, all or what is at `paths`; what was edited since stays, unless `force`."""
        chosen = {"paths": None if paths is None else list(paths), "force": force}
        return await self._asked(Decided, "POST", "/undo", json=chosen)

    async def discard(self, *, paths: Sequence[str] | None = None) -> Decided:
        """The changes are thrown away, all or what is at `paths`; the folder stays as it is."""
        chosen = {"paths": None if paths is None else list(paths)}
        return await self._asked(Decided, "POST", "/discard", json=chosen)

    async def remove(self, *, force: bool = False) -> None:
        """With its record. Conflict while it is under way, or its changes are undecided and not `force`."""
        await self.client.connection.ask("DELETE", self._at, params={"force": str(force).lower()})

    async def _asked(self, kind: type[T], method: str, path: str = "", **how: Any) -> T:
        return await self.client._asked(kind, method, f"{self._at}{path}", **how)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteResult(RunResult):
    """What a run of a server came to. Its changes are there: what is asked about them blocks, as for a run here."""

    remote: AsyncRun

    @property
    def changes(self) -> tuple[Change, ...]:
        """RunResult.changes."""
        return tuple(one.change for one in self._there(self.remote.diff).files)

    @property
    def diff(self) -> str:
        """RunResult.diff."""
        return "".join(one.patch for one in self._there(self.remote.diff).files)

    def apply(self, *, flagged: bool = False, force: bool = False, merge: bool = False) -> tuple[str, ...]:
        """RunResult.apply."""
        return self._there(partial(self.remote.apply, flagged=flagged, force=force, merge=merge)).paths

    def undo(self, *, force: bool = False) -> tuple[str, ...]:
        """RunResult.undo."""
        return self._there(partial(self.remote.undo, force=force)).paths

    def discard(self) -> None:
        """RunResult.discard."""
        self._there(self.remote.discard)

    def _there(self, work: Callable[[], Awaitable[T]]) -> T:
        if in_loop():
            raise UsageError("this thread runs an event loop", "`await` the same of `client.attach(result.run_id)`")
        if (portal := self.remote.client.portal) is None:
            raise UsageError("the client was closed", "use the result inside `with Client(...) as client:`")
        return portal.call(work)


def _pack(root: Path, packed: IO[bytes]) -> None:
    """UsageError for what is no folder, or cannot be read."""
    root = Path(expanduser(root))
    if not isdir(root):
        raise UsageError(f"there is no folder {root}", "`folder` is one of the server's")
    try:
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(root, arcname=".")
    except OSError as error:
        raise UsageError(f"the folder {root} cannot be sent: {error.strerror}") from None
    packed.flush()


async def _pieces(packed: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await to_thread.run_sync(packed.read, _PIECE):
        yield piece
