import os
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stockade.core.errors import ModelUnavailable
from stockade.models.local.fetch import is_llamafile
from stockade.models.local.folder import sha256_of
from stockade.models.local.gguf import GgufInfo, read_gguf
from stockade.models.replies import parse_size_label
from tests.support.scale import scaled


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


KEYS = [
    key("general.architecture", 8, text("llama")),
    key("general.name", 8, text("Tiny \x1b[31mmodel")),
    key("general.license", 8, text("mit")),
    key("general.size_label", 8, text("1M")),
    key("general.file_type", 4, struct.pack("<I", 15)),
    key("llama.context_length", 4, struct.pack("<I", 2048)),
    key("llama.block_count", 4, struct.pack("<I", 2)),
    key("llama.embedding_length", 4, struct.pack("<I", 64)),
    key("llama.attention.head_count", 4, struct.pack("<I", 4)),
    key("llama.attention.head_count_kv", 4, struct.pack("<I", 2)),
    key("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2000) + text("ab") * 2000),
    key("tokenizer.ggml.scores", 9, struct.pack("<IQ", 6, 2000) + b"\0" * 8000),
    key("tokenizer.nested", 9, struct.pack("<IQIQ", 9, 1, 4, 1) + b"\0" * 4),
    key("tokenizer.chat_template", 8, text("{{ messages }}")),
]


def gguf(keys: list[bytes] = KEYS, version: int = 3, tensors: int = 1, weights: int = 128) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, len(keys)) + b"".join(keys)
    head += (text("w") + struct.pack("<IQQIQ", 2, 8, 4, 0, 0)) * tensors
    return head + b"\0" * (-len(head) % 32) + b"\1" * weights


def read(tmp_path: Path, data: bytes) -> GgufInfo:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    return read_gguf(path)


def test_what_a_header_tells(tmp_path: Path) -> None:
    assert read(tmp_path, gguf()) == GgufInfo(
        path=str(tmp_path / "m.gguf"), size_bytes=len(gguf()), architecture="llama", name="Tiny [31mmodel",
        context_length=2048, quantisation="Q4_K_M", licence="mit", size_label="1M",
        kv_bytes_per_token=2 * 2 * 2 * (16 + 16), parameters=8 * 4,
        parameters_source="the shapes of the file's tensors",
    )  # fmt: skip


def test_one_part_of_a_split_model_is_not_counted(tmp_path: Path) -> None:
    """What the metadata says of the whole counts there, and nothing else."""
    part = key("split.count", 2, struct.pack("<H", 3))
    count = key("general.parameter_count", 10, struct.pack("<Q", 8_000_000_000))
    info = read(tmp_path, gguf([*KEYS, part, count]))
    assert (info.parameters, info.parameters_source) == (8_000_000_000, "general.parameter_count in the file")
    info = read(tmp_path, gguf([*KEYS, part]))
    assert (info.parameters, info.parameters_source) == (1_000_000, "general.size_label in the file")
    unlabelled = [one for one in KEYS if b"size_label" not in one]
    info = read(tmp_path, gguf([*unlabelled, part]))
    assert (info.parameters, info.parameters_source) == (None, "")


def test_a_matrix_that_is_stored_twice_counts_once(tmp_path: Path) -> None:
    """Qwen2.5-Coder-1.5B's file has 1.78 B numbers for 1.54 B parameters. A label that is far off is not believed."""
    unlabelled = [one for one in KEYS if b"size_label" not in one]
    for label, parameters in (("0.00003M", 30), ("0.00001M", 32), ("0.00004M", 32), ("135M", 32)):
        assert read(tmp_path, gguf([*unlabelled, key("general.size_label", 8, text(label))])).parameters == parameters


@pytest.mark.parametrize(
    ("label", "parameters"),
    [
        ("1.5B", 1_500_000_000),
        ("135M", 135_000_000),
        ("567.75M", 567_750_000),
        ("8x7B", 56_000_000_000),
        ("30B-A3B", 30_000_000_000),
        ("1T", 1_000_000_000_000),
        ("7 B", 7_000_000_000),
        ("", None),
        ("large", None),
        ("4Bit", None),
        ("A3B", None),
    ],
)
def test_size_labels(label: str, parameters: int | None) -> None:
    assert parse_size_label(label) == parameters


def test_silence_is_fine(tmp_path: Path) -> None:
    info = read(tmp_path, gguf(KEYS[:1]))
    assert (info.name, info.context_length, info.quantisation) == ("", None, "")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"GGU", "does not begin with GGUF"),
        (b"\x7fELF" + bytes(200), "does not begin with GGUF"),
        (b"GGUF", "the header is cut short"),
        (gguf()[:500], "the header is cut short"),
        (gguf()[:-1], "the file is cut short"),
        (gguf(version=9), "version 9"),
        (gguf(KEYS[1:]), "names no architecture"),
        (gguf([key("general.architecture", 8, text("../x"))]), "names no architecture"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 1 << 60), "keys announced"),
        (gguf([key("a", 8, struct.pack("<Q", 1 << 63))]), "the header is cut short"),
        (gguf([key("a", 99, b"")]), "unknown type 99"),
        (gguf([key("a", 9, struct.pack("<IQ", 4, 1 << 62))]), "the header is cut short"),
        (gguf([key("a", 9, struct.pack("<IQ", 8, 1 << 62))]), "the header is cut short"),
        (gguf([key("a", 9, struct.pack("<IQ", 9, 1 << 62))]), "header"),
        (gguf([KEYS[0], key("general.alignment", 4, struct.pack("<I", 1 << 31))]), "the file is cut short"),
    ],
)
def test_broken_files_give_one_line(tmp_path: Path, data: bytes, reason: str) -> None:
    with pytest.raises(ModelUnavailable, match=reason) as caught:
        read(tmp_path, data)
    assert "\n" not in str(caught.value)
    assert "m.gguf" in caught.value.message


def test_not_a_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing", Path("/dev/null")):
        with pytest.raises(ModelUnavailable, match=r"cannot read|not a usable"):
            read_gguf(path)


def fifo(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "x.gguf")
    return tmp_path / "x.gguf"


def test_a_pipe_is_refused_and_not_waited_at(tmp_path: Path) -> None:
    path = fifo(tmp_path)
    with pytest.raises(ModelUnavailable, match=r"x\.gguf: it is no regular file"):
        read_gguf(path)
    for read_any in (sha256_of, is_llamafile):
        with pytest.raises(OSError, match="it is no regular file"):
            read_any(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=scaled(150), deadline=None)
@given(st.data())
def test_flipped_bytes_never_crash_it(tmp_path: Path, data: st.DataObject) -> None:
    broken = bytearray(gguf())
    for place in data.draw(st.lists(st.integers(0, len(broken) - 1), min_size=1, max_size=6)):
        broken[place] = data.draw(st.integers(0, 255))
    with suppress(ModelUnavailable):
        read(tmp_path, bytes(broken))
