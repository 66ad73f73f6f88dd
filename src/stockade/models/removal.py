"""`stockade model rm`: a file out of the model folder, with all that is known of it."""

import os
from contextlib import suppress
from pathlib import Path

from stockade.core.errors import UsageError
from stockade.files import try_lock
from stockade.models.catalogue import CATALOGUE
from stockade.models.listing import catalogued
from stockade.models.model_cache import forget, models_folder
from stockade.models.names import parse_name
from stockade.models.server_lease import running, stop_all_idle


def remove(spec: str, folder: Path | None = None) -> Path:
    """The path that was removed. UsageError when it is not there, not in the model folder, or in use. Blocking."""
    folder = (folder or models_folder()).absolute()
    path = _file(spec, folder)
    part = path.with_name(f"{path.name}.part")
    if not path.is_file() and not part.is_file():
        raise UsageError(f"there is no file {path}", "see stockade model list")
    real = os.path.realpath(path)
    stop_all_idle(real)
    for server in running():
        if server.path == real:
            raise UsageError(f"{path} is in use", "wait until the runs and programs that use it have ended")
    lock = path.with_name(f".{path.name}.lock")
    if lock.exists():
        with lock.open("rb") as file:
            if not try_lock(file.fileno()):
                raise UsageError(f"{path} is being fetched by another process", "end that first")
            _forget(path, part, lock)
    else:
        _forget(path, part)
    while path.parent != folder:  # folders that a pull had made
        path = path.parent
        with suppress(OSError):
            path.rmdir()
    return Path(real)


def _forget(path: Path, *others: Path) -> None:
    forget(path)
    for other in others:
        other.unlink(missing_ok=True)


def _file(spec: str, folder: Path) -> Path:
    name = parse_name(f"embedded/{spec}" if spec in CATALOGUE else spec)
    if name.provider == "embedded":
        return folder / catalogued(name.name).file
    path = Path(name.name).expanduser().absolute()
    if name.provider != "gguf" or not path.is_relative_to(folder) or ".." in path.parts:
        raise UsageError(f"'{spec}' is not in the model folder {folder}", "files elsewhere are yours to remove")
    return path
