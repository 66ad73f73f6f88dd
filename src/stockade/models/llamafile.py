"""Llamafiles: a program for every system with a zip archive at its end, and a GGUF file in that."""

import zipfile
from collections.abc import Callable
from pathlib import Path

from stockade.core.errors import ModelUnavailable
from stockade.files import open_regular
from stockade.models.model_cache import check_space

_BLOCK = 1 << 22


def is_llamafile(path: Path) -> bool:
    """Whether this is a program or archive with an archive's directory at its end, and no GGUF file."""
    with open_regular(path) as file:
        return file.read(4) != b"GGUF" and zipfile.is_zipfile(file)


def extract_gguf(path: Path, target: Path, stopped: Callable[[], bool] = lambda: False) -> None:
    """The model in it, to `target`, its checksum compared; nothing in it is run. Blocking.

    ModelUnavailable when there is none, or it is damaged. `stopped` ends it with InterruptedError.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            models = [item for item in archive.infolist() if item.filename.endswith(".gguf")]
            if not models:
                raise ModelUnavailable(f"there is no GGUF file in {path}", "is it a llamafile without its model?")
            model = max(models, key=lambda item: item.file_size)
            check_space(target.parent, model.file_size)
            done = 0
            with archive.open(model) as source, target.open("wb") as file:
                while block := source.read(_BLOCK):
                    if stopped():
                        raise InterruptedError
                    done += len(block)
                    if done > model.file_size:
                        raise ModelUnavailable(f"the model in {path} is larger than it says")
                    file.write(block)
            if done != model.file_size:
                raise ModelUnavailable(f"the model in {path} is cut short")
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ModelUnavailable(f"{path} is damaged: {error}") from error
