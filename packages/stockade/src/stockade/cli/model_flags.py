"""Flags of how a model is loaded and how it answers. Their names are the fields of core/model_options.py."""

from collections.abc import Callable
from typing import Any

import click

Flag = Callable[[Callable[..., Any]], Callable[..., Any]]


def _flag(name: str, kind: type | None, metavar: str, words: str) -> Flag:
    if kind is bool:
        return click.option(f"{name}/{name.replace('--', '--no-', 1)}", default=None, help=words)
    return click.option(name, type=kind, default=None, metavar=metavar, help=words)


SAMPLING = (
    _flag("--seed", int, "N", "Seed of the sampling: the same seed gives the same run, on a local server of its own."),
    _flag("--temperature", float, "T", "Temperature of the sampling; 0 takes the likeliest token."),
    _flag("--top-p", float, "P", "Sample from the likeliest tokens that make up P together."),
    _flag("--top-k", int, "N", "Sample from the N likeliest tokens; 0 is all."),
    _flag("--min-p", float, "P", "Sample from tokens at least P as likely as the likeliest."),
    _flag("--typical-p", float, "P", "Locally typical sampling (llama.cpp)."),
    _flag("--repeat-penalty", float, "X", "Penalty on tokens that came lately; 1 is none."),
    _flag("--repeat-last-n", int, "N", "How many tokens count as lately (llama.cpp); -1 is the window."),
    _flag("--presence-penalty", float, "X", "Penalty on tokens that came at all."),
    _flag("--frequency-penalty", float, "X", "Penalty on tokens by how often they came."),
    _flag("--mirostat-mode", int, "0|1|2", "Mirostat sampling (llama.cpp); 0 is off."),
    _flag("--mirostat-tau", float, "X", "Surprise that mirostat aims at."),
    _flag("--mirostat-eta", float, "X", "Learning rate of mirostat."),
    _flag("--dry-multiplier", float, "X", "DRY, a penalty on sequences that come again (llama.cpp); 0 is off."),
    _flag("--answer-tokens", int, "N", "Tokens of one answer; 1024 on local models."),
)
LOADING_MORE = (
    _flag("--threads-batch", int, "N", "Threads for reading prompts."),
    _flag("--batch-size", int, "N", "Tokens of a prompt that are read at once."),
    _flag("--ubatch-size", int, "N", "The same, physically."),
    _flag("--mmap", bool, "", "Map the model file, or read it whole."),
    _flag("--mlock", bool, "", "Keep the model from being swapped out."),
    _flag("--cache-type-k", str, "TYPE", "Type of the KV cache's keys, as f16 or q8_0."),
    _flag("--cache-type-v", str, "TYPE", "Type of the KV cache's values."),
    _flag("--rope-freq-base", float, "X", "Base frequency of RoPE; 0 is the model's."),
    _flag("--rope-freq-scale", float, "X", "Frequency scale of RoPE."),
    _flag("--main-gpu", int, "N", "The GPU for what is not split."),
    _flag("--split-mode", str, "none|layer|row", "How a model is split over several GPUs."),
    _flag("--tensor-split", str, "X,Y,...", "Shares of the GPUs."),
    _flag("--numa", str, "distribute|isolate|numactl", "On machines with several memory nodes."),
    _flag("--lora", str, "FILE", "A LoRA adapter."),
)
