"""`run --detach`, and a run that is under way in another process: `runs logs`, `attach` and `stop`."""

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import click

from stockade.cli import flags
from stockade.cli.lazy import load
from stockade.cli.opened import on_record
from stockade.cli.ui.console import can_ask, results
from stockade.cli.ui.failures import say
from stockade.cli.ui.overheard import Following
from stockade.cli.ui.review import kept
from stockade.cli.ui.safe import fit_for_terminal, hide, screen
from stockade.core.errors import StockadeError, UsageError
from stockade.core.events import RunEvent, RunFinished, to_json
from stockade.core.ports import RunStore
from stockade.core.secrets import Redactor
from stockade.paths import current_folder, run_dir, state_dir
from stockade.run_lock import CONTROL, LOG, Driver, driver_of, is_locked, status_now

_LOOK_S = 0.1
_CHUNK = 1 << 16
_SHOWN_BYTES = 32 << 10
_PAGE = 300


def detach(go: Callable[..., int], given: Mapping[str, Any]) -> int:
    """`go` in a process of its own session, without a terminal. Until its bot can work, what it says is said here, and
    how it ends is how this ends; then its run is printed, and it goes on alone. Ctrl-C before that ends it.
    """
    folder = state_dir()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"detached-{os.getpid()}.log"
    path.unlink(missing_ok=True)
    log = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    told, tell = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    if child := os.fork():
        os.close(tell)
        run_id, status = _begun(child, told, log)
        if not run_id:
            return status
        print(json.dumps({"type": "detached", "run": run_id}) if given.get("json") else run_id)
        if not (given.get("quiet") or given.get("json")):
            hint = f"stockade runs logs -f {run_id}, or runs attach, or runs stop"
            say("it goes on without this terminal", hint)
        return 0
    os.close(told)
    try:
        _let_go(log)
        return go(talk=load("cli.away:Away")(path, partial(_tell, tell)))
    finally:
        path.unlink(missing_ok=True)


def _tell(pipe: int, run_id: str) -> None:
    with suppress(OSError):
        os.write(pipe, f"{run_id}\n".encode())
        os.close(pipe)


def _let_go(log: int) -> None:
    """Of the terminal. What is piped in is still to be read."""
    os.setsid()
    with open(os.devnull, "rb") as nothing:
        if sys.stdin is None or sys.stdin.isatty():
            os.dup2(nothing.fileno(), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)


def _begun(child: int, told: int, log: int) -> tuple[str, int]:
    """The run that it is, or none and its exit status; what is written until then goes to stderr."""
    seen, run_id = 0, b""
    while True:
        try:
            ready, _, _ = select.select([told], [], [], _LOOK_S)
            while data := os.pread(log, _CHUNK, seen):
                os.write(2, data)
                seen += len(data)
            if ready and not run_id.endswith(b"\n"):
                if not (more := os.read(told, 100)):
                    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                    while data := os.pread(log, _CHUNK, seen):
                        os.write(2, data)
                        seen += len(data)
                    return "", status if status >= 0 else 128 - status
                run_id += more
            if run_id.endswith(b"\n"):
                return run_id.decode().strip(), 0
        except KeyboardInterrupt:
            os.kill(child, signal.SIGTERM)


@click.command("logs", short_help="What a run has shown so far; -f follows it to its end.")
@flags.run(default="last")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@flags.offered(flags.JSON, flags.STORE)
def logs(run: str, follow: bool, **values: Any) -> int:
    """What RUN has shown so far, in order; with -f all that comes, until it has ended.

    Of a detached run that is under way, what it writes; of any other its record. With -f, the output of a command as it
    comes. With --json, the record. Status 0.
    """
    with on_record(values) as (store, settings):
        run_id = anyio.run(store.find, run)
        driver = driver_of(run_id)
        if driver is not None and driver.detached and not settings.front.json_lines:
            with _Log(run_id, driver) as log:
                log.copy()
                while follow and log.wait():
                    log.copy()
                return 0
        return _from_record(store, run_id, follow=follow, json_lines=settings.front.json_lines)


def _from_record(store: RunStore, run_id: str, *, follow: bool, json_lines: bool) -> int:
    """Page by page; the run is over when nobody drives it and nothing more is on record."""
    hide(load("core.secrets:view_of")(anyio.run(partial(store.events, run_id, limit=1))[0], os.environ, ()).redactor)
    renderer, number, ended = load("cli.ui.render:Renderer")(results(), show_answer=True), 0, False
    following, last = Following(run_id) if follow and not json_lines else None, 0.0
    while True:
        over = not follow or not _is_under_way(store, run_id)
        while page := anyio.run(partial(store.events, run_id, first=number, limit=_PAGE)):
            number += len(page)
            for event in map(Redactor.like(screen()).event, page):
                for stream, data in following.before(event.at) if following else ():
                    renderer.output(stream, data)
                last = event.at
                ended = isinstance(event, RunFinished) or (ended and event.type != "run_resumed")
                if json_lines:
                    print(to_json(event, ascii_only=True), flush=True)
                else:
                    renderer.event(event)
        if over:
            break
        for stream, data in following.now(last) if following else ():
            renderer.output(stream, data)
        select.select([], [], [], _LOOK_S)
    if following is not None:
        following.close()
    if not ended and not json_lines:
        print(f"[{status_now(run_id, 'running', anyio.run(store.driver, run_id))}: the record ends here]")
    return 0


def _is_under_way(store: RunStore, run_id: str) -> bool:
    return is_locked(run_id) or anyio.run(store.driver, run_id) is not None


class _Log:
    """Of a detached run, read from its beginning; `tail`: the last of it."""

    def __init__(self, run_id: str, driver: Driver, *, tail: bool = False) -> None:
        self._driver = driver
        try:
            self._file = open(run_dir(run_id) / LOG, "rb", buffering=0)  # noqa: SIM115 (closed by __exit__)
        except OSError as error:
            raise UsageError(f"the log of run {run_id} cannot be read: {error.strerror}") from None
        if tail and (size := os.fstat(self._file.fileno()).st_size) > _SHOWN_BYTES:
            self._file.seek(size - _SHOWN_BYTES)
            while (byte := self._file.read(1)) and byte != b"\n":
                pass
            say(f"only the last of what it showed: stockade runs logs {run_id} has all")

    def __enter__(self) -> "_Log":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        os.close(self._driver.pidfd)

    def copy(self, known: bytes = b"") -> bytes:
        """To stdout what has come, but for what is `known` to be on the screen; what is left of that."""
        while data := self._file.read(_CHUNK):
            shared = min(len(data), len(known))
            same = shared if data[:shared] == known[:shared] else 0
            known = known[same:] if same else b""
            rest = memoryview(data)[same:]
            while rest:
                rest = rest[os.write(1, rest) :]
        return known

    def wait(self, *more: int) -> list[int]:
        """A moment; whatever of `more` can be read, after the run's own descriptor; nothing when the process is gone,
        and all that it wrote has been copied.
        """
        ready, _, _ = select.select([self._driver.pidfd, *more], [], [], _LOOK_S)
        if self._driver.pidfd in ready:
            self.copy()
            return []
        return [self._driver.pidfd, *ready]


@click.command("attach", short_help="See a detached run live, and answer its questions.")
@flags.run(default="last")
@flags.offered(flags.STORE)
def attach(run: str, **values: Any) -> int:
    """See a detached RUN live, and answer what it asks: whether the bot may do something, what becomes of its changes.

    What you type otherwise is told to the bot before its next turn. Ctrl-D leaves, and the run goes on; Ctrl-C is as
    in `stockade run`: it holds the run and asks, a second one stops it. Exit status as of `stockade run`; 0 when you
    leave.
    """
    with on_record(values) as (store, _):
        run_id = anyio.run(store.find, run)
        driver = _driver(store, run_id)
        if not driver.detached:
            raise UsageError(f"run {run_id} has a terminal of its own", f"stockade runs logs -f {run_id} follows it")
        if not (can_ask(no_input=False) and sys.stdout.isatty()):
            raise UsageError("attaching needs a terminal", f"stockade runs logs -f {run_id} follows without")
        say(f"run {run_id} · Ctrl-D leaves, and it goes on · Ctrl-C holds it")
        if _attached(run_id, driver):
            say("it goes on without this terminal", f"stockade runs attach {run_id}")
            return 0
        finished = _end(store, run_id)
        return int(load("cli.ui.summary:status_of")(finished)) if finished is not None else 4


def _attached(run_id: str, driver: Driver) -> bool:
    """True when the user leaves, False at the end of the run."""
    connection, asks, heard, known, there = _connected(run_id), 0, b"", b"", True

    def send(**said: Any) -> None:
        with suppress(OSError):
            connection.sendall(json.dumps(said).encode() + b"\n")

    def hear() -> None:
        """The number of what it asks, which comes before its text is in the log."""
        nonlocal asks, heard, there
        there = bool(data := connection.recv(_CHUNK))
        *lines, heard = (heard + data).split(b"\n")
        for line in lines:
            asks = int(json.loads(line)["asks"])

    before = signal.signal(signal.SIGINT, lambda *_: send(interrupt=True))
    try:
        with connection, _Log(run_id, driver, tail=True) as log:
            hear()
            log.copy()
            while ready := log.wait(sys.stdin.fileno(), *([connection.fileno()] if there else [])):
                if sys.stdin.fileno() in ready:
                    if not (typed := os.read(sys.stdin.fileno(), _CHUNK)):
                        return True
                    text = typed.decode(errors="replace").strip()
                    known = f"{fit_for_terminal(text)}\n".encode() if asks else b""
                    send(line=text, to=asks)
                known = log.copy(known)
                while there and select.select([connection], [], [], 0)[0]:
                    hear()
        return False
    finally:
        signal.signal(signal.SIGINT, before)


def _connected(run_id: str) -> socket.socket:
    place = os.open(run_dir(run_id), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(f"/proc/self/fd/{place}/{CONTROL}")
    except OSError as error:
        connection.close()
        hint = f"stockade runs logs -f {run_id}"
        raise UsageError(f"run {run_id} cannot be attached to: {error.strerror}", hint) from None
    finally:
        os.close(place)
    return connection


@click.command("stop", short_help="End runs that are under way, in order.")
@flags.run(nargs=-1)
@flags.offered(flags.JSON, flags.STORE)
def stop(run: tuple[str, ...], **values: Any) -> int:
    """End runs that are under way, and wait for that: what runs in the sandbox ends, the record is closed, changes are
    kept to be decided on. `stockade runs resume` goes on with one.

    Without RUN the one of this folder. Status 2 when one of them cannot be stopped: it is not under way, or not by a
    process of yours on this machine.
    """
    with on_record(values) as (store, settings):
        status = 0
        for run_id in dict.fromkeys(anyio.run(store.find, one) for one in run or (_of_here(store),)):
            try:
                _stop(store, run_id, json_lines=settings.front.json_lines)
            except StockadeError as error:
                say(f"not stopped: {error.message}", error.hint)
                status = error.exit_status
        return status


def _of_here(store: RunStore) -> str:
    """UsageError unless just one is under way that works in this folder or below it."""
    folder = current_folder()
    summaries = anyio.run(partial(store.runs, folder=str(folder)))
    found = [one.run_id for one in summaries if one.status == "running" and is_locked(one.run_id)]
    if len(found) != 1:
        what = f"{len(found)} runs of {folder} are under way" if found else f"no run of {folder} is under way"
        raise UsageError(what, f"name it: {', '.join(found[:5])}" if found else "stockade runs list --status running")
    return found[0]


def _stop(store: RunStore, run_id: str, *, json_lines: bool) -> None:
    pidfd = _driver(store, run_id).pidfd
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise UsageError(f"run {run_id} is another user's", "stop it as that user") from None
    select.select([pidfd], [], [])
    os.close(pidfd)
    finished = _end(store, run_id)
    if json_lines:
        how = {"status": finished.status, "reason": finished.reason} if finished else {"status": "interrupted"}
        print(json.dumps({"type": "stopped", "run": run_id, **how}))
        return
    say(f"run {run_id}: {finished.status if finished else 'interrupted'}", f"stockade runs resume {run_id} goes on")
    if finished is not None and finished.changes:
        say(kept(run_id))


def _driver(store: RunStore, run_id: str) -> Driver:
    """UsageError where nobody drives it, or nobody who could be told."""
    driver = driver_of(run_id)
    if driver is None and (who := anyio.run(store.driver, run_id)) is not None:
        raise UsageError(f"run {run_id} is driven by {who}", "stop it there")
    if driver is None:
        raise UsageError(f"run {run_id} is not under way", f"stockade runs show {run_id}, or runs resume")
    return driver


def _end(store: RunStore, run_id: str) -> RunFinished | None:
    events: list[RunEvent] = anyio.run(store.events, run_id)
    finished: RunFinished | None = load("changes:facts")(events).finished
    return finished
