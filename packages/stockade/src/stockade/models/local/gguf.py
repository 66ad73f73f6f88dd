"""What a GGUF file says about itself. A bounded reader: the file may be hostile.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

import mmap
import re
import struct
from pathlib import Path
from typing import Any, TypeVar

from stockade.core.data import Data
from stockade.core.errors import ModelUnavailable
from stockade.core.text import one_line
from stockade.models.replies import MAX_COUNT, as_count, parse_size_label
from stockade.paths import open_regular

_T = TypeVar("_T")

_MAX_KEYS = 100_000
_MAX_TENSORS = 1_000_000
_MAX_TEXT_BYTES = 1 << 20
_MAX_KEPT_ITEMS = 1024

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9

# llama.h, enum llama_ftype.
_QUANTISATIONS = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
                  12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K",
                  19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL",
                  26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16",
                  36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4"}  # fmt: skip

# ggml.h and ggml-common.h: type -> (values a block, bytes a block).
_TENSOR_BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
                  10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
                  24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 30: (1, 2)}  # fmt: skip

_STORED_TWICE = 1.25
_HINT = "give the path of a whole .gguf file"


class GgufInfo(Data):
    """What the header tells; None or "" where it is silent. `context_length` in tokens, `size_bytes` of the file.
    `parameters` counts all of the model's, from `parameters_source`.
    """

    path: str
    size_bytes: int
    architecture: str
    name: str = ""
    context_length: int | None = None
    quantisation: str = ""
    licence: str = ""
    size_label: str = ""
    kv_bytes_per_token: int = 0
    parameters: int | None = None
    parameters_source: str = ""


class _Damaged(ValueError):
    pass


class _Reader:
    """A cursor over the mapped file that never reads past its end."""

    def __init__(self, view: mmap.mmap) -> None:
        self.view = view
        self.at = 0

    def skip(self, count: int) -> int:
        start, self.at = self.at, self.at + count
        if self.at > len(self.view):
            raise _Damaged("the header is cut short")
        return start

    def number(self, form: str) -> Any:
        return struct.unpack_from(form, self.view, self.skip(struct.calcsize(form)))[0]

    def text(self) -> str:
        length = self.number("<Q")
        start = self.skip(length)
        if length > _MAX_TEXT_BYTES:
            raise _Damaged(f"a text of {length} bytes in the header")
        return self.view[start : start + length].decode(errors="replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY or depth > 2:
            raise _Damaged(f"a value of unknown type {kind} in the header")
        inner, count = self.number("<I"), self.number("<Q")
        if inner in _SCALARS and count > _MAX_KEPT_ITEMS:
            self.skip(struct.calcsize(_SCALARS[inner]) * count)
            return None
        if inner == _STRING and count > _MAX_KEPT_ITEMS:
            return self._skip_texts(count)
        # Each item takes at least one byte, so a hostile count ends at the end of the file.
        return [self.value(inner, depth + 1) for _ in range(min(count, len(self.view) - self.at + 1))]

    def _skip_texts(self, count: int) -> None:
        unpack, view, at, end = struct.Struct("<Q").unpack_from, self.view, self.at, len(self.view)
        for _ in range(count):
            if at + 8 > end:
                raise _Damaged("the header is cut short")
            at += 8 + unpack(view, at)[0]
        self.at = at
        self.skip(0)


def read_gguf(path: Path) -> GgufInfo:
    """The header of a GGUF file, its length checked against the tensors it announces.

    ModelUnavailable, in one line, when the file is missing, empty, cut short or something else.
    """
    try:
        with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return _read(path, view)
    except OSError as error:
        raise ModelUnavailable(f"cannot read the model file {path}: {error.strerror or error}", _HINT) from error
    except (_Damaged, struct.error, ValueError, OverflowError) as error:
        cause = "it is empty" if not path.stat().st_size else str(error)
        raise ModelUnavailable(f"not a usable model file: {path}: {cause}", _HINT) from error


def _read(path: Path, view: mmap.mmap) -> GgufInfo:
    reader = _Reader(view)
    if view[:4] != b"GGUF":
        raise _Damaged("it does not begin with GGUF")
    reader.skip(4)
    version = reader.number("<I")
    if version not in (2, 3):
        raise _Damaged(f"GGUF version {version} is not known")
    tensors, keys = reader.number("<Q"), reader.number("<Q")
    if keys > _MAX_KEYS or tensors > _MAX_TENSORS:
        raise _Damaged(f"{tensors} tensors and {keys} keys announced")
    fields: dict[str, Any] = {}
    for _ in range(keys):
        key = reader.text()
        fields[key] = reader.value(reader.number("<I"))
    weights = _check_length(reader, tensors, _of(fields, "general.alignment", int) or 32)
    return _info(path, len(view), fields, weights)


def _check_length(reader: _Reader, tensors: int, alignment: int) -> int:
    """The number of weights in all tensors, by their shapes. _Damaged when the file is too short for them."""
    needed = weights = 0
    for _ in range(tensors):
        reader.text()
        dimensions = reader.number("<I")
        if dimensions > 8:
            raise _Damaged(f"a tensor with {dimensions} dimensions")
        count = 1
        for _ in range(dimensions):
            count *= reader.number("<Q")
        kind, offset = reader.number("<I"), reader.number("<Q")
        values, size = _TENSOR_BLOCKS.get(kind, (1, 0))
        weights += count
        needed = max(needed, offset + count // values * size)
    start = -(-reader.at // alignment) * alignment
    if start + needed > len(reader.view):
        raise _Damaged(f"the file is cut short: {len(reader.view)} of {start + needed} bytes")
    return weights


def _parameters(found: dict[str, Any], weights: int) -> tuple[int | None, str]:
    """How many the whole model has, and what says so.

    The tensors are counted, but for one part of a split model, which has some of them only. Where the label says a
    little less, it is right: some files hold the matrix of input and output twice.
    """
    label = parse_size_label(_of(found, "general.size_label", str) or "")
    whole = (_of(found, "split.count", int) or 1) <= 1 and 0 < weights <= MAX_COUNT
    if whole and not (label and label <= weights <= label * _STORED_TWICE):
        return weights, "the shapes of the file's tensors"
    if stated := as_count(found.get("general.parameter_count")):
        return stated, "general.parameter_count in the file"
    return label, "general.size_label in the file"


def _info(path: Path, size: int, found: dict[str, Any], weights: int) -> GgufInfo:
    architecture = _of(found, "general.architecture", str) or ""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", architecture):
        raise _Damaged("it names no architecture")

    def number(key: str) -> int:
        value = found.get(f"{architecture}.{key}")
        if isinstance(value, list):
            value = max((item for item in value if isinstance(item, int)), default=0)
        return value if isinstance(value, int) else 0

    def text(key: str) -> str:
        return one_line(_of(found, key, str) or "", 200)

    heads = number("attention.head_count") or 1
    width = number("embedding_length") // heads
    per_layer = (number("attention.head_count_kv") or heads) * (
        (number("attention.key_length") or width) + (number("attention.value_length") or width)
    )
    kind = _of(found, "general.file_type", int)
    parameters, source = _parameters(found, weights)
    return GgufInfo(
        path=str(path), size_bytes=size, architecture=architecture,
        name=text("general.name"), context_length=number("context_length") or None,
        quantisation=_QUANTISATIONS.get(kind, f"type {kind}") if kind is not None else "",
        licence=text("general.license"), size_label=text("general.size_label"),
        kv_bytes_per_token=2 * number("block_count") * per_layer,
        parameters=parameters, parameters_source=source if parameters else "",
    )  # fmt: skip


def _of(found: dict[str, Any], key: str, kind: type[_T]) -> _T | None:
    value = found.get(key)
    return value if isinstance(value, kind) else None
