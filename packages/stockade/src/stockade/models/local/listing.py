"""What models are here and which could be fetched, for `stockade model list` and `info`; and `model rm`."""

import os
from contextlib import suppress
from pathlib import Path

from pydantic import computed_field

from stockade.core.data import Data
from stockade.core.errors import ModelUnavailable, UsageError
from stockade.core.messages import is_small
from stockade.models.local.catalogue import CATALOGUE, OUR_TABLE, CatalogueModel, catalogued
from stockade.models.local.folder import forget, is_verified, models_folder, provenance
from stockade.models.local.gguf import GgufInfo, read_gguf
from stockade.models.local.server_lease import in_use
from stockade.models.providers import parse_name
from stockade_sandbox.locks import try_lock


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
    path = Path(parsed.name).expanduser().absolute()
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
    path = Path(name.name).expanduser().absolute()
    if name.provider != "gguf" or not path.is_relative_to(folder) or ".." in path.parts:
        raise UsageError(f"'{spec}' is not in the model folder {folder}", "files elsewhere are yours to remove")
    return path
