"""GGUF files of a few kilobytes that llama.cpp loads: tokenisers of every kind, templates, and weights of zero."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_WIDTH = 32
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6
_VECTORS = ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm")
_MATRICES = tuple(f"blk.0.{name}" for name in (
    "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down",
))  # fmt: skip


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _value(value: Any, integer: str = "<II", kind: int = 4) -> bytes:
    """Its type and itself: bool, int, float, text, or a list of one of the last three, whose integers have a sign."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack(integer, kind, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    items = [_value(item, "<Ii", 5) for item in value]
    return struct.pack("<I", 9) + items[0][:4] + struct.pack("<Q", len(items)) + b"".join(item[4:] for item in items)


def _byte_letters() -> list[str]:
    """The letters that stand for the 256 bytes in byte-level BPE, as GPT-2 chose them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]


def _bpe(pre: str) -> tuple[dict[str, Any], list[tuple[str, int]]]:
    tokens = [(letter, _NORMAL) for letter in _byte_letters()] + [("\u0120i", _NORMAL), ("im", _NORMAL)]
    return {"model": "gpt2", "pre": pre, "merges": ["\u0120 i", "i m"]}, tokens


def _sentencepiece() -> tuple[dict[str, Any], list[tuple[str, int]]]:
    tokens = [("<unk>", _UNKNOWN), *((f"<0x{byte:02X}>", _BYTE) for byte in range(256))]
    tokens += [(chr(code), _NORMAL) for code in range(33, 127)] + [("\u2581", _NORMAL), ("\u2581i", _NORMAL)]
    return {"model": "llama", "add_space_prefix": True}, tokens


def write_tiny_gguf(
    path: Path, template: str, control: Sequence[str], user_defined: Sequence[str] = (), *, bpe: str = "qwen2",
    add_bos: bool = False,
) -> dict[str, int]:  # fmt: skip
    """The control tokens' ids. `control[0]` begins a text, `control[1]` ends an answer; `bpe` "" is SentencePiece."""
    kind, tokens = _bpe(bpe) if bpe else _sentencepiece()
    ids = {token: len(tokens) + number for number, token in enumerate(control)}
    tokens += [(token, _CONTROL) for token in control] + [(token, _USER_DEFINED) for token in user_defined]
    fields: dict[str, Any] = {
        "general.architecture": "llama", "llama.context_length": 4096, "llama.embedding_length": _WIDTH,
        "llama.block_count": 1, "llama.feed_forward_length": _WIDTH, "llama.attention.head_count": 1,
        "llama.rope.dimension_count": _WIDTH, "llama.attention.layer_norm_rms_epsilon": 1e-5,
        **{f"tokenizer.ggml.{name}": value for name, value in kind.items()},
        "tokenizer.ggml.tokens": [token for token, _ in tokens],
        "tokenizer.ggml.token_type": [kind for _, kind in tokens],
        "tokenizer.ggml.scores": [-float(len(tokens) - number) for number in range(len(tokens))],
        "tokenizer.ggml.bos_token_id": ids[control[0]], "tokenizer.ggml.eos_token_id": ids[control[1]],
        "tokenizer.ggml.add_bos_token": add_bos, "tokenizer.chat_template": template,
    }  # fmt: skip
    shapes = {"token_embd": (_WIDTH, len(tokens)), **dict.fromkeys(_VECTORS, (_WIDTH,))}
    shapes |= dict.fromkeys(_MATRICES, (_WIDTH, _WIDTH))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(fields))
    head += b"".join(_text(name) + _value(value) for name, value in fields.items())
    offset = 0
    for name, shape in shapes.items():
        head += _text(f"{name}.weight") + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset)
        offset += 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + b"\0" * offset)
    return ids
