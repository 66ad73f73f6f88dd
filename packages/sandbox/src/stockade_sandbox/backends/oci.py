"""Container images without an engine: `oci:DIR[:NAME]`, `docker-archive:FILE` and `NAME@sha256:HEX`, each unpacked once
into a folder of the cache, which is named after the image's own digest.

Every byte is checked against that digest before it is used. What was not unpacked to its end has another name, and goes
when the next image is unpacked.
"""

import ctypes
import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, TypeVar, cast

import msgspec

from stockade_sandbox.backends.in_root import open_in_root
from stockade_sandbox.backends.unpack import BoundedHeader, Unpacking
from stockade_sandbox.errors import SandboxFailed, UsageError
from stockade_sandbox.leftovers import remove_stale
from stockade_sandbox.locks import lock, open_lock
from stockade_sandbox.policy import MIB, is_loopback
from stockade_sandbox.processes import COPIES, own_folder, private_folder
from stockade_sandbox.stoppable import Progress

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_REMOTE = re.compile(r"([a-z0-9][a-z0-9._:/-]*)@(sha256:[0-9a-f]{64})")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MAX_JSON, _MAX_ACCOUNTS = 8 * MIB, MIB
_FETCH_S = 3600
T = TypeVar("T")


class Image(NamedTuple):
    """`root` is its file system, only read. Its user inside with their home and name; variables, and where to begin."""

    root: str
    uid: int
    gid: int
    home: str
    name: str
    environment: dict[str, str]
    workdir: str | None


class _Platform(msgspec.Struct):
    architecture: str = ""
    os: str = ""


class _Descriptor(msgspec.Struct, rename="camel"):
    digest: str
    size: int
    media_type: str = ""
    platform: _Platform | None = None
    annotations: dict[str, str] | None = None


class _Index(msgspec.Struct):
    manifests: list[_Descriptor]


class _Manifest(msgspec.Struct):
    config: _Descriptor
    layers: list[_Descriptor]


class _Saved(msgspec.Struct, rename="pascal"):
    """An entry of manifest.json, as `docker save` writes it."""

    config: str
    layers: list[str]


class _Settings(msgspec.Struct, rename="pascal"):
    env: list[str] | None = None
    working_dir: str | None = None
    user: str | None = None


class _RootFs(msgspec.Struct):
    diff_ids: list[str]


class _Config(msgspec.Struct):
    rootfs: _RootFs
    architecture: str = ""
    config: _Settings | None = None


class _Source(Protocol):
    """Where an image lies: its configuration as bytes that were checked, and its layers, the lowest first."""

    config: bytes

    def layers(self) -> Iterator[BinaryIO]: ...


def unpacked(reference: str, progress: Progress) -> Image:
    """The image, from the cache where it was unpacked before. Blocks; `progress` may raise, to end that.

    UsageError for what is none, SandboxFailed where the disk will not take it or it cannot be fetched.
    """
    cache = own_folder("cache") / "images"
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _source(reference, cache) as source:
            name = hashlib.sha256(source.config).hexdigest()
            config = _read(_Config, source.config, f"the configuration of {reference}")
            wanted = _ARCHITECTURES.get(platform.machine(), platform.machine())
            if config.architecture and config.architecture != wanted:
                raise UsageError(f"the image {reference} is for {config.architecture}", f"this machine is {wanted}")
            _unpack(source, config, cache, name, progress)
        return _image(str(cache / name / "root"), config.config or _Settings())
    except OSError as error:
        what = f"the image {reference} cannot be unpacked into {cache}: {error.strerror or error}"
        raise SandboxFailed(what, "free some space, or set XDG_CACHE_HOME") from error


def _unpack(source: _Source, config: _Config, cache: Path, name: str, progress: Progress) -> None:
    """Nothing where it is there. One at a time: another that wants the same one finds it done."""
    if (cache / name).is_dir():
        return
    held = open_lock(cache / "lock")
    try:
        lock(held)
        remove_stale(cache)
        if (cache / name).is_dir():
            return
        made = private_folder(COPIES, cache)
        try:
            unpacking = Unpacking(made / "root", progress)
            try:
                _fill(unpacking, source, config.rootfs.diff_ids, made)
            finally:
                unpacking.close()
            _sync(made)  # or the name could reach the disk before what it names
            made.rename(cache / name)
        except BaseException:
            shutil.rmtree(made)
            raise
    finally:
        os.close(held)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(fd)


def _fill(unpacking: Unpacking, source: _Source, diff_ids: Sequence[str], beside: Path) -> None:
    layers = source.layers()
    for diff_id in diff_ids:
        blob = next(layers, None)
        if blob is None:
            raise UsageError(f"the image names {len(diff_ids)} layers and has fewer", "fetch it again")
        with blob:
            unpacking.layer(blob, diff_id, beside)


@contextmanager
def _source(reference: str, cache: Path) -> Iterator[_Source]:
    kind, _, path = reference.partition(":")
    if kind == "docker-archive":
        if not os.path.isfile(path):
            raise UsageError(f"--image {reference}: there is no such file", "give what `docker save -o FILE` wrote")
        try:
            with tarfile.open(path, "r:", tarinfo=BoundedHeader) as tar:
                yield _Archive(tar, path)
        except (tarfile.TarError, RecursionError) as error:
            raise UsageError(f"--image {reference}: {error}", "give what `docker save -o FILE` wrote") from None
    elif kind == "oci":
        yield _Layout(path)
    else:
        with _fetched(reference, cache) as folder:
            yield _Layout(str(folder))


@contextmanager
def _fetched(reference: str, cache: Path) -> Iterator[Path]:
    """By skopeo, which checks the digest, into a layout that is kept with the cache: by a digest nothing changes."""
    found = _REMOTE.fullmatch(reference)
    if not found:
        raise UsageError(f"--image {reference!r} is no image", "write NAME@sha256:HEX, in lower case")
    name, digest = found[1], found[2]
    host = name.partition("/")[0]
    layout = cache / f"layout-{hashlib.sha256(f'{name}@{digest}'.encode()).hexdigest()}"
    if not layout.is_dir():
        if shutil.which("skopeo") is None:
            hint = "apt-get install skopeo; or save the image elsewhere, and give docker-archive:FILE"
            raise UsageError(f"--image {reference}: skopeo, which fetches images, is not here", hint)
        made = private_folder(COPIES, cache)
        try:
            plain = ["--src-tls-verify=false"] if is_loopback(host.rpartition(":")[0] or host) else []
            done = subprocess.run(
                ["skopeo", "copy", "--quiet", *plain, f"docker://{name}@{digest}", f"oci:{made}/layout:image"],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_FETCH_S, check=False,
            )  # fmt: skip
            if done.returncode:
                said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
                raise SandboxFailed(f"skopeo could not fetch {reference}: {said[-300:]}", "is its name right?")
            with suppress(OSError):  # another was quicker
                (made / "layout").rename(layout)
        finally:
            shutil.rmtree(made)
    yield layout


class _Layout:
    """A folder as the OCI image layout says. UsageError where it is none."""

    def __init__(self, path: str) -> None:
        folder, _, name = path.partition(":") if not os.path.isdir(path) else (path, "", "")
        self._folder = folder
        index = _read(_Index, self._bytes("index.json"), f"{folder}/index.json")
        manifest = self._chosen(index, name, depth=0)
        self._layers, self.config = manifest.layers, self._blob_bytes(manifest.config)

    def _chosen(self, index: _Index, name: str, depth: int) -> _Manifest:
        wanted, titles = _ARCHITECTURES.get(platform.machine(), ""), "org.opencontainers.image.ref.name"
        found = [
            one
            for one in index.manifests
            if (not name or (one.annotations or {}).get(titles) == name)
            and (one.platform is None or one.platform.architecture in ("", wanted))
        ]
        if len(found) != 1 or depth > 2:
            names = sorted(filter(None, ((one.annotations or {}).get(titles) for one in index.manifests)))
            what = f"{self._folder} holds {len(found)} images{f' named {name}' if name else ''} for {wanted}"
            raise UsageError(what, f"write oci:{self._folder}:NAME, of {', '.join(names[:5]) or 'no names'}")
        data = self._blob_bytes(found[0])
        if b'"manifests"' in data and "config" not in _read(dict[str, object], data, found[0].digest):
            return self._chosen(_read(_Index, data, found[0].digest), "", depth + 1)
        return _read(_Manifest, data, found[0].digest)

    def layers(self) -> Iterator[BinaryIO]:
        for layer in self._layers:
            file = self._open(f"blobs/sha256/{_hex(layer.digest)}")
            found = hashlib.file_digest(cast(BytesIO, file), "sha256").hexdigest()
            if found != _hex(layer.digest) or file.tell() != layer.size:
                file.close()
                raise UsageError(f"the image's layer {layer.digest} is not what it says", "fetch it again")
            file.seek(0)
            yield file

    def _blob_bytes(self, one: _Descriptor) -> bytes:
        data = self._bytes(f"blobs/sha256/{_hex(one.digest)}")
        if hashlib.sha256(data).hexdigest() != _hex(one.digest) or len(data) != one.size:
            raise UsageError(f"{one.digest} of {self._folder} is not what it says", "fetch the image again")
        return data

    def _bytes(self, name: str) -> bytes:
        with self._open(name) as file:
            return _bounded(file, f"{self._folder}/{name}")

    def _open(self, name: str) -> BinaryIO:
        """A file of it, no link."""
        try:
            fd = os.open(f"{self._folder}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            what = f"{self._folder} is no OCI image: {name}: {error.strerror}"
            raise UsageError(what, "give a folder with index.json, as `skopeo copy ... oci:DIR` writes it") from None
        file = os.fdopen(fd, "rb")
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            file.close()
            raise UsageError(f"{self._folder} is no OCI image: {name} is no file", "give another")
        return file


class _Archive:
    """What `docker save` and `podman save` write."""

    def __init__(self, tar: tarfile.TarFile, path: str) -> None:
        self._tar, self._path = tar, path
        saved = _read(list[_Saved], self._bytes("manifest.json"), f"{path}: manifest.json")
        if len(saved) != 1:
            raise UsageError(f"{path} holds {len(saved)} images", "save one: `docker save -o FILE NAME`")
        self._layers, self.config = saved[0].layers, self._bytes(saved[0].config)

    def layers(self) -> Iterator[BinaryIO]:
        for name in self._layers:
            yield self._open(name)

    def _bytes(self, name: str) -> bytes:
        with self._open(name) as file:
            return _bounded(file, f"{self._path}: {name}")

    def _open(self, name: str) -> BinaryIO:
        try:
            file = cast(BinaryIO | None, self._tar.extractfile(name))
        except KeyError:
            file = None
        if file is None:
            raise UsageError(f"{self._path} has no file {name!r}", "give what `docker save -o FILE` wrote")
        return file


def _bounded(file: BinaryIO, what: str) -> bytes:
    data = file.read(_MAX_JSON + 1)
    if len(data) > _MAX_JSON:
        raise UsageError(f"{what} is more than {_MAX_JSON // MIB} MiB", "make the image anew")
    return data


def _read(kind: type[T], data: bytes, what: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{what} cannot be read: {error}", "make the image anew") from None


def _hex(digest: str) -> str:
    found = _DIGEST.fullmatch(digest)
    if not found:
        raise UsageError(f"{digest[:80]!r} is no sha256 digest", "make the image anew")
    return found[1]


def _image(root: str, settings: _Settings) -> Image:
    uid, gid, home, name = _account(root, settings.user or "0")
    given = dict(pair.partition("=")[::2] for pair in settings.env or ())
    workdir = settings.working_dir or None
    if workdir is not None and (not workdir.startswith("/") or ".." in workdir.split("/") or "\0" in workdir):
        raise UsageError(f"the image's folder to start in is {workdir!r}", "make the image anew")
    return Image(root, uid, gid, home, name, given, workdir)


def _account(root: str, user: str) -> tuple[int, int, str, str]:
    """Of USER[:GROUP], by names or numbers: user, group, home and name."""
    who, _, group = user.partition(":")
    people = [line for line in _lines(root, "etc/passwd", 7) if who in (line[0], line[2])]
    groups = [line for line in _lines(root, "etc/group", 4) if group and group in (line[0], line[2])]
    try:
        uid = int(people[0][2] if people else who)
        gid = int(groups[0][2] if groups else group or (people[0][3] if people else "0"))
    except ValueError:
        raise UsageError(f"the image's user is {user!r}, whom its /etc/passwd does not name", "set USER anew") from None
    if not (0 <= uid < 1 << 31 and 0 <= gid < 1 << 31):
        raise UsageError(f"the image's user is {user!r}", "set USER anew")
    home = people[0][5] if people and people[0][5].startswith("/") else "/"
    return uid, gid, home, people[0][0] if people else who


def _lines(root: str, path: str, fields: int) -> list[list[str]]:
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with open(open_in_root(folder, path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            text = file.read(_MAX_ACCOUNTS).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return []
    finally:
        os.close(folder)
    return [line for line in (line.split(":") for line in text.splitlines()) if len(line) == fields]
