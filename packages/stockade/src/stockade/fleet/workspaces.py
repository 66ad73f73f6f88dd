"""The folders of a fleet's runs, and what the runs wrote, in a store that all of its machines reach: S3 or one like it,
or a folder that all of them see. `obstore` speaks to it.

    folders/HASH.tar             a folder as it was when a run of it began, by the hash of these bytes
    runs/RUN/begin.json          which of them the run has
    runs/RUN/segments/HASH       a segment of the layer's snapshots (stockade_sandbox.overlay.store)
    runs/RUN/at/NAME.json        the segments that a checkpoint, or the end of the run, is made of

Nothing of it is written to again, and what a machine writes that has lost the run is not read: the record names it.
"""

import hashlib
import os
import stat
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from os.path import expanduser
from pathlib import Path
from typing import IO, Annotated, Any, TypeVar

from pydantic import Field, ValidationError

from stockade.core.data import Data
from stockade.core.errors import SandboxFailed, UsageError, to_install
from stockade.core.events import RunEvent, RunFinished
from stockade.loop.state import fold
from stockade.paths import run_dir, state_dir
from stockade.runtime.resume import last_snapshots
from stockade_sandbox.backends.host_info import fresh_sandbox_uid
from stockade_sandbox.backends.remote.folders import Entry, Taking, entry_of, whole, write_tar
from stockade_sandbox.locks import lock, open_lock, release, try_lock
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.overlay.paths import FETCHED
from stockade_sandbox.overlay.prepare import prepare_layer, survey
from stockade_sandbox.overlay.record import LAYER_FILE, read_record, write_file
from stockade_sandbox.overlay.restore import restore
from stockade_sandbox.overlay.safe_fs import CHUNK, DirTree, decode_path, encode_path
from stockade_sandbox.overlay.snapshots import kind_of, scan
from stockade_sandbox.overlay.store import BASE, KEPT, number_of
from stockade_sandbox.policy import FolderRule
from stockade_sandbox.records import line_of, replace
from stockade_sandbox.results import FolderLayer

_CACHED = 16
"""So many folders that no run uses stay on a machine."""
_PIECE = 8 << 20
_STORE = "--workspaces s3://BUCKET/PREFIX with AWS_... set, or a folder that all machines see"
_RETRIES: Any = {"max_retries": 8, "retry_timeout": timedelta(seconds=60)}
Names = tuple[str | None, ...]
T = TypeVar("T", bound=Data)
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Sent(Data):
    """A folder, or a file, of the machine that the batch was begun on, and under which hash it lies in the store."""

    host: Annotated[str, Field(pattern=r"^/.*[^./][^/]*$")]
    name: Hash


class Begin(Data):
    """Of a run. `state`: where the layers of runs are on the machine of the batch; `since_ns`: nothing had been written
    to its folders by the run then.
    """

    sent: tuple[Sent, ...]
    state: str
    since_ns: int


class Piece(Data):
    """A file of a layer's place, and the hash of its content."""

    path: Annotated[str, Field(pattern=rf"^({KEPT}|{BASE})/[0-9][^/]*$")]
    name: Hash


class Point(Data):
    """What was in the layers of a run at a checkpoint: of each its snapshot's name, its segments, and, by path, when
    entries were made whose time no snapshot has (ns).
    """

    names: Names
    pieces: tuple[tuple[Piece, ...], ...]
    times: tuple[dict[str, int], ...] = ()


class Workspaces:
    """Of the store at `url`. Its methods block; SandboxFailed where it is out of reach, or does not hold what it must.

    UsageError for an address that is none, and where the package is not installed.
    """

    def __init__(self, url: str) -> None:
        self.url = url if "://" in url else str(Path(expanduser(url)).absolute())
        try:
            import obstore  # noqa: PLC0415 (an optional extra)
            from obstore.store import LocalStore, from_url  # noqa: PLC0415
        except ImportError:
            raise UsageError("--workspaces needs the package obstore", to_install("ray")) from None
        self._obstore = obstore
        with _told(f"{url!r} is no store of folders", _STORE, UsageError):
            local = None if "://" in url else LocalStore(self.url, mkdir=True)
            self._store: Any = local or from_url(url, retry_config=_RETRIES)
        self._turn = threading.Lock()
        self._known = dict[str, tuple[str, Sent]]()
        self._have = dict[tuple[str, int, int], str]()

    def check(self) -> None:
        """UsageError where nothing can be written to it."""
        try:
            self._put("stockade", b"folders of runs of stockade batch, and what the runs wrote")
        except SandboxFailed as error:
            raise UsageError(error.message, _STORE) from None

    def begin(self, run_id: str, paths: Sequence[str]) -> None:
        """Before a run begins: its folders, and files, are in the store when this returns. Once for each run."""
        if self._has(f"runs/{run_id}/begin.json"):
            return
        with tempfile.TemporaryFile(dir=_folder()) as clock:  # the file system's own, as that of a layer is
            since_ns = os.fstat(clock.fileno()).st_ctime_ns
        sent = tuple(self._sent(path) for path in dict.fromkeys(paths))
        self._put(
            f"runs/{run_id}/begin.json", _line(Begin(sent=sent, state=str(state_dir() / "runs"), since_ns=since_ns))
        )

    def begun(self, run_id: str) -> Begin:
        return self._read(f"runs/{run_id}/begin.json", Begin)

    def _sent(self, path: str) -> Sent:
        """One that is as it was when it was last sent is not read again."""
        with self._turn, _told(f"{path} cannot be read"):
            look = _look_of(Path(path))
            known = self._known.get(path)
            if known is None or known[0] != look:
                with tempfile.TemporaryFile(dir=_folder()) as file:
                    write_tar(_entries(Path(path)), file)
                    name = _hash_of(file)
                    if not self._has(f"folders/{name}.tar"):
                        file.seek(0)
                        self._put(f"folders/{name}.tar", file)
                known = self._known[path] = (look, Sent(host=path, name=name))
        return known[1]

    @contextmanager
    def here(self, begin: Begin) -> Iterator[dict[str, str]]:
        """Where the folders of a run are on this machine, by their paths on the other, as long as this lasts."""
        found, held = dict[str, str](), list[int]()
        try:
            for sent in begin.sent:
                place = _folder() / sent.name
                with _told(f"{place} cannot be used"):
                    held.append(open_lock(_folder() / f"{sent.name}.lock"))
                    self._fetch(sent.name, place, held[-1])
                found[sent.host] = str(place / Path(sent.host).name)
            yield found
        finally:
            self._have.clear()
            for descriptor in held:
                release(descriptor)

    def _fetch(self, name: str, place: Path, descriptor: int) -> None:
        lock(descriptor, shared=True)
        while not place.is_dir():
            lock(descriptor)
            if not place.is_dir():
                _make_room()
                with tempfile.TemporaryDirectory(dir=_folder(), prefix="part-") as part:
                    self._unpack(name, Path(part, "folder"))
                    Path(part, "folder").rename(place)
            lock(descriptor, shared=True)
        os.utime(descriptor)

    def _unpack(self, name: str, place: Path) -> None:
        with tempfile.TemporaryFile(dir=_folder()) as file:
            self._get(f"folders/{name}.tar", file)
            if _hash_of(file) != name:
                raise SandboxFailed(f"the folder {name[:12]} is damaged in {self.url}")
            file.seek(0)
            place.mkdir()
            Taking(place).take(file)

    def keep(
        self, run_id: str, layers: Sequence[FolderLayer], names: Names, point: str, *, ended: bool = False
    ) -> None:
        """What snapshots of these `names` are made of is in the store when this returns, under `point`. `ended`: nobody
        writes to the layers any more.
        """
        with _told(f"what run {run_id} wrote cannot be read"):
            pairs = list(zip(layers, names, strict=True))
            pieces = tuple(tuple(self._segments(run_id, layer, name)) for layer, name in pairs)
            times = tuple(_times(layer) if name and ended else {} for layer, name in pairs)
        self._put(f"runs/{run_id}/at/{point}.json", _line(Point(names=names, pieces=pieces, times=times)))

    def _segments(self, run_id: str, layer: FolderLayer, name: str | None) -> Iterator[Piece]:
        if name is None:
            return
        place = Path(str(layer.layer))
        kept = [place / KEPT / f"{number}" for number in range(1, number_of(name) + 1)]
        base = [path for path in sorted((place / BASE).glob("*")) if path.suffix != ".part"]
        for path in (*kept, *base):
            seen = path.stat()
            look = (str(path), seen.st_size, seen.st_mtime_ns)
            if (digest := self._have.get(look)) is None:
                with path.open("rb") as file:
                    digest = _hash_of(file)
                    file.seek(0)
                    self._put(f"runs/{run_id}/segments/{digest}", file)
                self._have[look] = digest
            yield Piece(path=str(path.relative_to(place)), name=digest)

    def bring(self, run_id: str, layers: Sequence[FolderLayer], point: str, since_ns: int = 0) -> bool:
        """Layers are on this machine, as they were at `point`, when this returns; what is there of them goes before.
        False where there is no such point, or nothing had been written.
        """
        if not self._has(f"runs/{run_id}/at/{point}.json"):
            return False
        found = self._read(f"runs/{run_id}/at/{point}.json", Point)
        if not any(found.names):
            return False
        base, uid = run_dir(run_id), fresh_sandbox_uid()
        with _told(f"what run {run_id} wrote cannot be put into {base}"):
            if base.exists():
                for path in base.iterdir():
                    if path.name.isdecimal():
                        remove_tree(path)
            for number, layer in enumerate(layers):
                if layer.layer is not None:
                    self._bring(run_id, _made(layer, base, uid, since_ns), found.pieces[number])
            for number, layer in enumerate(layers):
                if layer.layer is not None:
                    restore(layer, found.names[number])
                    for inner, when in found.times[number].items() if found.times else ():
                        os.utime(f"{layer.written}/{decode_path(inner)}", ns=(when, when), follow_symlinks=False)
        return True

    def _bring(self, run_id: str, place: Path, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            file_path = place / piece.path
            file_path.parent.mkdir(mode=0o700, exist_ok=True)
            with file_path.open("x+b") as file:
                self._get(f"runs/{run_id}/segments/{piece.name}", file)
                if _hash_of(file) != piece.name:
                    raise SandboxFailed(f"what run {run_id} wrote is damaged in {self.url}")

    def forget(self, run_id: str) -> None:
        """What is in the store of the run is removed; not its folders, which others may have."""
        with _told(f"{self.url} is out of reach"):
            for page in self._obstore.list(self._store, prefix=f"runs/{run_id}/"):
                self._obstore.delete(self._store, [one["path"] for one in page])

    def _has(self, path: str) -> bool:
        with _told(f"{self.url} is out of reach"):
            try:
                self._obstore.head(self._store, path)
            except FileNotFoundError:
                return False
        return True

    def _put(self, path: str, content: bytes | IO[bytes]) -> None:
        with _told(f"nothing can be kept in {self.url}"):
            self._obstore.put(self._store, path, content)

    def _get(self, path: str, out: IO[bytes]) -> None:
        with _told(f"{self.url} does not give what is kept there"):
            for piece in self._obstore.get(self._store, path).stream(min_chunk_size=_PIECE):
                out.write(piece)
        out.flush()

    def _read(self, path: str, kind: type[T]) -> T:
        with tempfile.TemporaryFile() as file:
            self._get(path, file)
            file.seek(0)
            try:
                return kind.model_validate_json(file.read())
            except ValidationError:
                raise SandboxFailed(f"{path} in {self.url} is not of ours") from None


def _line(message: Data) -> bytes:
    return message.model_dump_json().encode()


def snapshots_of(history: Sequence[RunEvent], layers: int) -> Names:
    """Those that a run goes on from, by its record."""
    return last_snapshots(fold(history), layers) if history else (None,) * layers


def point_named(names: Names) -> str:
    """Of a checkpoint."""
    return hashlib.sha256(repr(names).encode()).hexdigest()[:32]


def point_of_end(finished: RunFinished) -> str:
    """Of the run as it was then."""
    return f"end-{finished.at!r}"


def _made(layer: FolderLayer, base: Path, uid: int | None, since_ns: int) -> Path:
    """The empty place of a layer, where it was and of the kind that it was. A run that was killed as it began, and went
    on there, has not the first place.
    """
    rule = FolderRule(host=layer.host, mode=layer.mode, inside=layer.inside)
    wanted = None if layer.strategy == "overlay" else "it was a copy"
    name = Path(str(layer.layer)).name
    number = int(name) if name.isdecimal() else None
    made = prepare_layer(rule, base, sandbox_uid=uid, can_overlay=lambda _: wanted, number=number)
    if (made.layer, made.strategy) != (layer.layer, layer.strategy):
        what = f"what was written to {layer.host} on another machine cannot be taken over here"
        raise SandboxFailed(what, "all machines need the same user and state folder (XDG_STATE_HOME)")
    place = Path(str(made.layer))
    if since_ns:
        write_file(place / LAYER_FILE, line_of(replace(read_record(made)[1], started_ns=since_ns)))
    return place


def _times(layer: FolderLayer) -> dict[str, int]:
    """A snapshot has no time of these, and a seal has."""
    with DirTree(layer.written or Path()) as tree:
        found = scan(tree)
    return {encode_path(path): one.st_mtime_ns for path, one in found.items()
            if kind_of(one) in ("whiteout", "fifo")}  # fmt: skip


def _entries(path: Path) -> Iterator[Entry]:
    """Of what is sent, below its own name."""
    if not path.is_dir():
        with DirTree(path.parent) as tree:
            if (node := tree.node(path.name)) is not None:
                yield entry_of(tree, path.name, node)
        return
    seen = path.stat()
    yield Entry(path.name, "directory", stat.S_IMODE(seen.st_mode) & 0o777, seen.st_mtime_ns)
    with DirTree(path) as tree:
        for entry in whole(tree):
            yield Entry(f"{path.name}/{entry.path}", entry.kind, entry.mode, entry.mtime_ns, entry.target, entry.size,
                        entry.data)  # fmt: skip


def _look_of(path: Path) -> str:
    """Changes when anything in it does."""
    digest = hashlib.sha256(repr(_stamp(path.stat())).encode())
    if path.is_dir():
        with DirTree(path) as tree:
            for name, node in survey(tree).nodes.items():
                digest.update(repr((name, _stamp(node.stat))).encode(errors="surrogateescape"))
    return digest.hexdigest()


def _stamp(seen: os.stat_result) -> tuple[int, ...]:
    return seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def _hash_of(file: IO[bytes]) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(CHUNK):
        digest.update(piece)
    return digest.hexdigest()


def _folder() -> Path:
    """Of this machine: what it fetched."""
    found = state_dir() / FETCHED
    found.mkdir(mode=0o700, parents=True, exist_ok=True)
    return found


def _make_room() -> None:
    """The folders that were not used for longest go, but for those that are in use."""
    locks = sorted(_folder().glob("*.lock"), key=lambda path: path.stat().st_mtime_ns)
    for path in locks[:-_CACHED]:
        descriptor = open_lock(path)
        try:
            if try_lock(descriptor) and (folder := path.with_suffix("")).exists():
                remove_tree(folder)
        finally:
            release(descriptor)


@contextmanager
def _told(
    what: str, hint: str | None = None, kind: type[SandboxFailed] | type[UsageError] = SandboxFailed
) -> Iterator[None]:
    """What the store or a file system refuses, in words."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError | ValueError) and type(error).__module__ != "obstore.exceptions":
            raise
        words = getattr(error, "strerror", None) or next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise kind(f"{what}: {words[:300]}", hint) from None
