"""The routes of /v1/sandboxes on Starlette: who asks, what is said, and errors as problem+json."""

import base64
import hashlib
import hmac
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TypeVar

import anyio
import msgspec
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from stockade_sandbox.backends.remote.calls import (
    MAX_BODY,
    NAME,
    PIECE,
    WAIT_S,
    Closed,
    Health,
    Opened,
    Opening,
    Refusal,
    Resize,
    Signal,
    Start,
    encoded,
    refusal_of,
)
from stockade_sandbox.backends.remote.folders import SNAPSHOT, piped
from stockade_sandbox.errors import ActionFailed, ChangedOnHost, SandboxDied, StockadeError, UsageError
from stockade_sandbox.files import FILE_S, Files
from stockade_sandbox.port import Programs, StartedProgram
from stockade_sandbox.results import ExecResult
from stockade_sandbox.running import AsyncProgram
from stockade_sandbox.server import deciding
from stockade_sandbox.server.sessions import Conflicting, NotThere, Running, Session, Sessions, replace_state

OwnerOf = Callable[[str], str | None]
"""Who has this token; None when nobody has. Of two owners neither sees the other's sandboxes."""
STREAM_BYTES = 512 << 10
STREAM_S = 60.0
"""After so much one answer with events ends, and the client asks for what is behind it: so it is known what it has."""
PING_S = 15.0
BODY_S = 60.0
MAX_FILE = 64 << 20
T = TypeVar("T")
_STATUS: tuple[tuple[type[StockadeError], int, str], ...] = (
    (NotThere, 404, "Not Found"), (Conflicting, 409, "Conflict"), (SandboxDied, 410, "Gone"),
    (deciding.Outdated, 412, "Precondition Failed"), (ChangedOnHost, 409, "Conflict"),
    (UsageError, 422, "Unprocessable Content"), (ActionFailed, 422, "Unprocessable Content"),
)  # fmt: skip
"""The first that fits; else it is the machine's fault."""


def owners(tokens: Sequence[bytes]) -> OwnerOf:
    """Each of the tokens is an owner, known by its hash."""
    known = [hashlib.sha256(token).digest() for token in tokens]

    def owner_of(text: str) -> str | None:
        given = hashlib.sha256(text.encode(errors="surrogateescape")).digest()
        same = [one for one in known if hmac.compare_digest(one, given)]  # all are looked at
        return same[0].hex() if same else None

    return owner_of


class _Inside(Files):
    """Files of a session's sandbox, by programs in it: no path is looked up on this machine."""

    def __init__(self, session: Session) -> None:
        self._box = session.box

    async def _run(self, argv: Sequence[str], stdin: bytes, max_output: int) -> ExecResult:
        return await self._box.exec(argv, stdin, FILE_S, max_output)

    @asynccontextmanager
    async def start(self, argv: Sequence[str], *, timeout: float) -> AsyncIterator[AsyncProgram]:
        if not isinstance(self._box, Programs):
            raise UsageError(f"the sandbox {self._box.backend} runs one program at a time", "write smaller files")
        async with self._box.program(argv, "", timeout, errors=True) as program:
            yield AsyncProgram(program)


class _Stream(StreamingResponse):
    """Whatever ends it, what makes it ends too."""

    def __init__(
        self, made: AsyncGenerator[bytes], kind: str = "text/event-stream", headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(made, headers=headers, media_type=kind)
        self._made = made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._made):
            await super().__call__(scope, receive, send)


class App:
    """`app` is a Starlette to serve or mount. `sessions.run` has to be running beside it."""

    def __init__(self, sessions: Sessions, owner_of: OwnerOf) -> None:
        self._sessions, self._owner_of = sessions, owner_of
        one, program = "/v1/sandboxes/{id}", "/v1/sandboxes/{id}/programs/{n}"
        routes = [
            Route("/healthz", self._health, methods=["GET"]),
            Route("/v1/sandboxes", self._open, methods=["POST"]),
            Route("/v1/sandboxes", self._list, methods=["GET"]),
            Route(one, self._look, methods=["GET"]),
            Route(one, self._close, methods=["DELETE"]),
            Route(f"{one}/events", self._presence, methods=["GET"]),
            Route(f"{one}/programs", self._start, methods=["POST"]),
            Route(program, self._state, methods=["GET"]),
            Route(program, self._end, methods=["DELETE"]),
            Route(f"{program}/events", self._events, methods=["GET"]),
            Route(f"{program}/stdin", self._stdin, methods=["POST"]),
            Route(f"{program}/signal", self._signal, methods=["POST"]),
            Route(f"{program}/resize", self._resize, methods=["POST"]),
            Route(f"{one}/folders/{{number:int}}", self._take_folder, methods=["PUT"]),
            Route(f"{one}/folders/{{number:int}}/changes", self._changes, methods=["GET"]),
            Route(f"{one}/diff", self._diff, methods=["GET"]),
            Route(f"{one}/apply", self._apply, methods=["POST"]),
            Route(f"{one}/files/{{path:path}}", self._read_file, methods=["GET"]),
            Route(f"{one}/files/{{path:path}}", self._write_file, methods=["PUT"]),
        ]
        handlers = {StockadeError: _ours, HTTPException: _http, OSError: _file, Exception: _bug}
        self.app = Starlette(routes=routes, exception_handlers=handlers)

    def _owner(self, request: Request) -> str:
        if "origin" in request.headers:
            raise HTTPException(403, "pages may not ask this server")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        owner = self._owner_of(token.strip()) if scheme.lower() == "bearer" else None
        if owner is None:
            raise HTTPException(401, "no token that is known here", {"WWW-Authenticate": "Bearer"})
        return owner

    def _session(self, request: Request) -> Session:
        return self._sessions.find(self._owner(request), request.path_params["id"])

    def _running(self, request: Request) -> tuple[Session, Running]:
        session = self._session(request)
        return session, session.running(request.path_params["n"])

    async def _health(self, _: Request) -> Response:
        return _json(Health(status="ok", sandboxes=True))

    async def _open(self, request: Request) -> Response:
        owner, name = self._owner(request), _key(request)
        asked = await _read(request, Opening)
        if any(number >= len(asked.policy.folders) for number in asked.sent):
            raise HTTPException(422, "a folder that is sent is one of the policy's")
        session = self._sessions.begin(owner, name, asked.policy, asked.sent)
        if asked.sent and not session.is_open.is_set():
            found = Opened(id=session.name, backend="", wants=session.inbox.wanted)
            return _json(found, 202, {"Location": f"/v1/sandboxes/{session.name}"})
        with session.used():
            await session.is_open.wait()
        session.box  # noqa: B018  (says why it is not there)
        assert session.opened is not None
        return _json(session.opened, 201, {"Location": f"/v1/sandboxes/{session.name}"})

    async def _list(self, request: Request) -> Response:
        found = [one.opened for one in self._sessions.of(self._owner(request)) if one.opened is not None]
        return Response(msgspec.json.encode({"sandboxes": found}), media_type="application/json")

    async def _look(self, request: Request) -> Response:
        session = self._session(request)
        with session.used():
            await session.is_open.wait()
        session.box  # noqa: B018
        assert session.opened is not None
        return _json(session.opened)

    async def _close(self, request: Request) -> Response:
        owner, heard = self._owner(request), _number(request, "network")
        session = await self._sessions.end(owner, request.path_params["id"])
        return _json(Closed() if session is None else Closed(network=session.heard(heard)))

    async def _presence(self, request: Request) -> Response:
        """Its client is there. Only that is said, for as long as it is."""
        session = self._session(request)

        async def pings() -> AsyncGenerator[bytes]:
            with session.used():
                while not session.over.is_set():
                    yield b": here\n\n"
                    with anyio.move_on_after(PING_S):
                        await session.over.wait()

        return _Stream(pings())

    async def _start(self, request: Request) -> Response:
        session = self._session(request)
        with session.used():
            running = session.begin(_key(request), await _read(request, Start))
        place = f"/v1/sandboxes/{session.name}/programs/{running.state.n}"
        return _json(replace_state(running.state, output=None, result=None), 201, {"Location": place})

    async def _state(self, request: Request) -> Response:
        """Waits for its end, as long as `wait` says and WAIT_S at most."""
        session, running = self._running(request)
        with session.used(), anyio.move_on_after(min(WAIT_S, _number(request, "wait"))):
            await running.ended.wait()
        return _json(replace_state(running.state, network=session.heard(_number(request, "network"))))

    async def _end(self, request: Request) -> Response:
        session = self._session(request)
        with session.used():
            await session.end(request.path_params["n"])
        return Response(status_code=204)

    async def _events(self, request: Request) -> Response:
        session, running = self._running(request)
        at = _whole(request.headers.get("last-event-id", "0"))
        return _Stream(_told(session, running, at))

    async def _stdin(self, request: Request) -> Response:
        """`at`: how much came before; `end`: nothing comes after. 503 when it is not read: to be sent again."""
        session, running = self._running(request)
        with session.used():
            data = await _body(request, PIECE)
            end = request.query_params.get("end") == "1"
            if not await running.feed(_number(request, "at"), data, end, WAIT_S):
                raise HTTPException(503, "the program does not read its input", {"Retry-After": "0"})
        return Response(status_code=204)

    async def _signal(self, request: Request) -> Response:
        session, running = self._running(request)
        with session.used():
            asked = await _read(request, Signal)
            if asked.count is None or asked.count > running.signals:
                running.signals = asked.count or running.signals
                program = await _begun(running)
                if program is not None:
                    await (program.kill() if asked.tree else program.signal(asked.number))
        return Response(status_code=204)

    async def _resize(self, request: Request) -> Response:
        session, running = self._running(request)
        with session.used():
            asked = await _read(request, Resize)
            if (program := await _begun(running)) is not None:
                await program.resize(asked.rows, asked.columns)
        return Response(status_code=204)

    async def _take_folder(self, request: Request) -> Response:
        """A tar: all that is in it. The sandbox begins once it has all of its folders."""
        session = self._session(request)
        with session.used():
            try:
                await session.inbox.take(request.path_params["number"], _timely(request.stream()))
            except TimeoutError:
                raise HTTPException(408, "the request did not come in time") from None
            except ClientDisconnect:
                raise HTTPException(400, "the request broke off") from None
        return Response(status_code=204)

    async def _changes(self, request: Request) -> Response:
        """What was written to a folder that was sent, behind the snapshot `since`, as a tar; 204 where nothing was."""
        session = self._session(request)
        folder, since = session.folder(request.path_params["number"]), request.query_params.get("since", "")
        with session.used():
            async with folder.turn:
                name = await to_thread.run_sync(folder.now, since)
        if name == since:
            return Response(status_code=204)

        async def tar() -> AsyncGenerator[bytes]:
            with session.used():
                async with aclosing(piped(partial(folder.tell, since, name))) as pieces:
                    async for piece in pieces:
                        yield piece

        return _Stream(tar(), "application/x-tar", {SNAPSHOT: name})

    async def _diff(self, request: Request) -> Response:
        session = self._session(request)
        with session.used():
            text, known = await deciding.diff(session)
        return Response(text, 200, {"ETag": f'"{known}"'}, "text/x-diff")

    async def _apply(self, request: Request) -> Response:
        """With `If-Match` only what was reviewed. The sandbox is over then."""
        session = self._session(request)
        wanted, reviewed = await _read(request, deciding.Wanted), request.headers.get("if-match")
        with session.used():
            known = None if reviewed in (None, "*") else str(reviewed).strip('"')
            return _json(await deciding.apply(session, self._sessions.allowed, wanted, known))

    async def _read_file(self, request: Request) -> Response:
        session = self._session(request)
        with session.used():
            data = await _Inside(session).read_file("/" + request.path_params["path"], max_bytes=MAX_FILE)
        return Response(data, media_type="application/octet-stream")

    async def _write_file(self, request: Request) -> Response:
        session = self._session(request)
        with session.used():
            data = await _body(request, MAX_BODY)
            await _Inside(session).write_file("/" + request.path_params["path"], data)
        return Response(status_code=204)


async def _begun(running: Running) -> StartedProgram | None:
    """The program, when it is there; None when it is over, or is none that can be told anything."""
    if running.collects or running.start.shell is not None:
        raise UsageError("its output is collected: it can only be ended", "DELETE it")
    while running.program is None and not running.ended.is_set():
        await running.changed.wait()
    return running.program


async def _told(session: Session, running: Running, at: int) -> AsyncGenerator[bytes]:
    """Events behind `at`: pieces, whose id is where they end, and the end. It stops for what is read later."""
    running.reader += 1
    me, output, begin, until = running.reader, running.output, at, anyio.current_time() + STREAM_S
    with session.used():
        output.had(at)
        yield b"retry: 0\n\n"
        while running.reader == me and at - begin < STREAM_BYTES and anyio.current_time() < until:
            pieces = await output.behind(at, PING_S)
            for end, stream, data in pieces:
                if running.reader != me or at - begin >= STREAM_BYTES:
                    return
                yield b"id: %d\nevent: %s\ndata: %s\n\n" % (end, stream.encode(), base64.b64encode(data))
                at = end
            if not pieces:
                if output.over:
                    yield b"id: %d\nevent: end\ndata: \n\n" % at
                    return
                yield b": here\n\n"


def _key(request: Request) -> str | None:
    """The name that the client has chosen."""
    found = request.headers.get("idempotency-key")
    if found is not None and not NAME.fullmatch(found):
        raise HTTPException(422, "an Idempotency-Key is 1 to 32 of 0-9 and a-z here")
    return found


def _number(request: Request, name: str) -> int:
    return _whole(request.query_params.get(name, "0"))


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise HTTPException(422, f"{text[:40]!r} is no whole number")
    return int(text)


async def _body(request: Request, most: int) -> bytes:
    """At most so much is read, and not for ever."""
    found = bytearray()
    try:
        with anyio.fail_after(BODY_S):
            async for piece in request.stream():
                found += piece
                if len(found) > most:
                    raise HTTPException(413, f"the request is larger than {most} bytes")
    except TimeoutError:
        raise HTTPException(408, "the request did not come in time") from None
    except ClientDisconnect:
        raise HTTPException(400, "the request broke off") from None
    return bytes(found)


async def _timely(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """TimeoutError when nothing comes for a while."""
    while True:
        with anyio.fail_after(BODY_S):
            piece = await anext(pieces, None)
        if piece is None:
            return
        yield piece


async def _read(request: Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await _body(request, MAX_BODY), type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HTTPException(422, str(error)[:500]) from None


def _json(message: msgspec.Struct, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encoded(message), status, headers, "application/json")


def _refused(found: Refusal, headers: dict[str, str] | None = None) -> Response:
    return Response(encoded(found), found.status, headers, "application/problem+json")


async def _ours(_: Request, error: Exception) -> Response:
    assert isinstance(error, StockadeError)
    status, title = next(
        ((status, title) for kind, status, title in _STATUS if isinstance(error, kind)), (500, "Internal Server Error")
    )
    return _refused(refusal_of(error, status, title))


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code in (401, 403, 408, 413):  # what is left of its body is not waited for
        headers["Connection"] = "close"
    return _refused(Refusal(title="Refused", status=error.status_code, detail=str(error.detail)), headers)


async def _file(_: Request, error: Exception) -> Response:
    """Of a file inside."""
    assert isinstance(error, OSError)
    status = 404 if isinstance(error, FileNotFoundError) else 422
    return _refused(Refusal(title="File", status=status, detail=(error.strerror or str(error))[:500]))


async def _bug(_: Request, error: Exception) -> Response:
    return _refused(Refusal(title="Internal Server Error", status=500, detail="this is a bug in Stockade"))
