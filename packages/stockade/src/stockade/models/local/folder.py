"""The folder where model files are kept: what is in it and known to be right, what could be fetched; and `model rm`."""

import hashlib
import json
import os
from contextlib import suppress
from os.path import expanduser
from pathlib import Path

import anyio.from_thread
from pydantic import computed_field

from stockade.core.data import Data
from stockade.core.errors import ModelUnavailable, UsageError
from stockade.core.messages import is_small
from stockade.models.local.catalogue import CATALOGUE, OUR_TABLE, CatalogueModel, catalogued
from stockade.models.local.gguf import GgufInfo, read_gguf
from stockade.models.local.server_lease import in_use
from stockade.models.providers import parse_name
from stockade.paths import open_regular, write_whole
from stockade_sandbox.locks import try_lock
from stockade_sandbox.processes import own_folder

_BLOCK = 1 << 22


def models_folder() -> Path:
    """`$STOCKADE_MODELS`, else `$XDG_DATA_HOME/stockade/models`. Not made here."""
    chosen = os.environ.get("STOCKADE_MODELS")
    return Path(expanduser(chosen)).absolute() if chosen else own_folder("data") / "models"


def make_folder(folder: Path) -> None:
    """ModelUnavailable when it cannot be made or written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelUnavailable(
            f"cannot make the model folder {folder}: {error.strerror}", "set STOCKADE_MODELS to a folder of yours"
        ) from error


def check_space(folder: Path, needed_bytes: int) -> None:
    """ModelUnavailable when the disk has less than `needed_bytes` left."""
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    if free < needed_bytes:
        raise ModelUnavailable(
            f"not enough space in {folder}: {needed_bytes / 1e6:.0f} MB needed, {free / 1e6:.0f} MB free",
            "free some, or set STOCKADE_MODELS to a folder on another disk",
        )


def sha256_of(path: Path) -> str:
    """The hex digest. For a thread of anyio's, where cancelling ends it between two blocks.

    OSError where it cannot be read, or is no regular file.
    """
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(_BLOCK):
            anyio.from_thread.check_cancelled()
            digest.update(block)
    return digest.hexdigest()


def size_of(path: Path) -> int:
    """Bytes; 0 when there is no such file."""
    return path.stat().st_size if path.exists() else 0


def remember_verified(path: Path, sha256: str, source: str = "", licence: str = "") -> None:
    """The file's hash was just found to be `sha256`, and whence it came; later a glance at size and time is enough."""
    known = {"sha256": sha256, "source": source, "licence": licence, **_size_and_time(path)}
    write_whole(_stamp(path), json.dumps(known))


def provenance(path: Path) -> tuple[str, str, str]:
    """(sha256, source, licence) that were remembered of this very file, by size and modification time; else empty."""
    stamp = _read(_stamp(path))
    with suppress(OSError):
        if stamp.items() >= _size_and_time(path).items():
            return str(stamp.get("sha256", "")), str(stamp.get("source", "")), str(stamp.get("licence", ""))
    return "", "", ""


def is_verified(path: Path, sha256: str) -> bool:
    """True when this very file was found to have that hash before; with "" any hash will do."""
    known = provenance(path)[0]
    return known != "" and sha256 in ("", known)


def remember_loaded(path: Path) -> None:
    """The file was loaded with every weight checked. A cache: where it cannot be written, the check is made again."""
    with suppress(OSError):
        write_whole(_loaded_stamp(path), json.dumps(_size_and_time(path)))


def was_loaded(path: Path) -> bool:
    """True when this very file, by path, size and modification time, was loaded and checked before."""
    with suppress(OSError):
        return _read(_loaded_stamp(path)) == _size_and_time(path)
    return False


def forget(path: Path) -> None:
    """Remove the file and what was known of it."""
    path.unlink(missing_ok=True)
    _stamp(path).unlink(missing_ok=True)


def _stamp(path: Path) -> Path:
    return path.with_name(f".{path.name}.verified")


def _loaded_stamp(path: Path) -> Path:
    return own_folder("cache") / "loaded" / hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]


def _size_and_time(path: Path) -> dict[str, int]:
    stat = path.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _read(stamp: Path) -> dict[str, object]:
    """{} for one that is missing or damaged."""
    try:
        stamped = json.loads(stamp.read_text())
    except (OSError, ValueError):
        return {}
    return stamped if isinstance(stamped, dict) else {}


class ModelEntry(Data):
    """A row of the list. `here`: the file is on this machine; `verified`: its hash was compared and is right.

    `window` in tokens. `parameters` counts all of them, as `parameters_source` says. `problem` says in one line why a
    file that is here cannot be used.
    """

    name: str
    here: bool
    size_bytes: int
    window: int | None = None
    quantisation: str = ""
    licence: str = ""
    path: str
    verified: bool = False
    about: str = ""
    architecture: str = ""
    size_label: str = ""
    source: str = ""
    sha256: str = ""
    problem: str = ""
    parameters: int | None = None
    parameters_source: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def small(self) -> bool | None:
        """None where nobody says how many parameters it has."""
        return is_small(self.parameters)


def list_models(folder: Path | None = None) -> list[ModelEntry]:
    """The catalogue, then every other GGUF file in the model folder. Blocking, no network."""
    folder = folder or models_folder()
    entries = [_catalogued(model, folder) for model in CATALOGUE.values()]
    ours = {model.file for model in CATALOGUE.values()}
    strangers = sorted(path for path in folder.glob("**/*.gguf") if path.name not in ours and path.is_file())
    return entries + [_stranger(path) for path in strangers]


def model_info(name: str, folder: Path | None = None) -> ModelEntry:
    """One model, `embedded/NAME` or `gguf/PATH`. UsageError for others, ModelUnavailable when a file is broken."""
    parsed = parse_name(name)
    if parsed.provider == "embedded":
        return _catalogued(catalogued(parsed.name), folder or models_folder())
    if parsed.provider != "gguf":
        raise UsageError(f"nothing is known of '{name}' before it is asked", "name an embedded/ or gguf/ model")
    path = parsed.path
    return _file_entry(path, read_gguf(path))


def _catalogued(model: CatalogueModel, folder: Path) -> ModelEntry:
    path = folder / model.file
    here = path.is_file()
    return ModelEntry(
        **model.model_dump(exclude={"name", "file", "sources"}), name=f"embedded/{model.name}", here=here,
        path=str(path), verified=here and is_verified(path, model.sha256), source=model.sources[0],
        parameters_source=OUR_TABLE,
    )  # fmt: skip


def _file_entry(path: Path, info: GgufInfo) -> ModelEntry:
    sha256, source, licence = provenance(path)
    known = info.model_dump(include=ModelEntry.model_fields.keys() - {"name"})
    return ModelEntry(
        **known | {"licence": info.licence or licence}, name=f"gguf/{path}", here=True, window=info.context_length,
        about=info.name, source=source, sha256=sha256, verified=bool(source and sha256),
    )  # fmt: skip


def _stranger(path: Path) -> ModelEntry:
    try:
        return _file_entry(path, read_gguf(path))
    except ModelUnavailable as error:
        size = path.stat().st_size
        return ModelEntry(name=f"gguf/{path}", here=True, size_bytes=size, path=str(path), problem=error.message)


def remove(spec: str, folder: Path | None = None) -> Path:
    """The path that was removed. UsageError when it is not there, not in the model folder, or in use. Blocking."""
    folder = (folder or models_folder()).absolute()
    path = _file(spec, folder)
    part = path.with_name(f"{path.name}.part")
    if not path.is_file() and not part.is_file():
        raise UsageError(f"there is no file {path}", "see stockade model list")
    real = Path(os.path.realpath(path))
    if in_use(path) is not None:
        raise UsageError(f"{path} is in use", "wait until the runs and programs that use it have ended")
    lock = path.with_name(f".{path.name}.lock")
    with lock.open("ab") as file:
        if not try_lock(file.fileno()):
            raise UsageError(f"{path} is being fetched by another process", "end that first")
        forget(path)
        part.unlink(missing_ok=True)
        lock.unlink(missing_ok=True)
    while path.parent != folder:  # folders that a pull had made
        path = path.parent
        with suppress(OSError):
            path.rmdir()
    return real


def _file(spec: str, folder: Path) -> Path:
    name = parse_name(f"embedded/{spec}" if spec in CATALOGUE else spec)
    if name.provider == "embedded":
        return folder / catalogued(name.name).file
    path = name.path
    if name.provider != "gguf" or not path.is_relative_to(folder) or ".." in path.parts:
        raise UsageError(f"'{spec}' is not in the model folder {folder}", "files elsewhere are yours to remove")
    return path
