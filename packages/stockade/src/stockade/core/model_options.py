"""Of the settings: how a model is loaded and how it answers, and what pocket-ASI calls them."""

import re
from typing import Any

from pydantic import field_validator

from stockade.core.data import Data
from stockade.core.messages import Sampling
from stockade.core.settings import LoadSettings, SamplingSettings

LOCAL_ANSWER_TOKENS = 1024


class SamplingOptions(SamplingSettings, Data):
    """SamplingSettings as a model. `answer_tokens` bounds one answer."""

    def sampling(self, *, local: bool, local_tokens: int = LOCAL_ANSWER_TOKENS) -> Sampling:
        """Greedy and bounded on a local model, the server's own choice elsewhere."""
        args = {name: getattr(self, name) for name in SamplingOptions.model_fields if name != "answer_tokens"}
        if local and self.temperature is None and not self.mirostat_mode:
            args["temperature"] = 0.0
        bound = self.answer_tokens or (local_tokens if local else None)
        return Sampling(**args, max_tokens=bound)


class LoadOptions(LoadSettings, Data):
    """LoadSettings as a model."""

    @field_validator("tensor_split")
    @classmethod
    def _shares(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[0-9.]+([,/][0-9.]+)*", value):
            raise ValueError(f"{value!r} is not numbers with commas between, as 3,1")
        return value

    def load_more(self) -> dict[str, Any]:
        """What was set beyond the window, threads and layers on the GPU."""
        return self.model_dump(include=set(LoadOptions.model_fields) - _PLAIN, exclude_none=True)


_PLAIN = {"ctx_size", "threads", "gpu_layers"}


LLAMA_VARIABLES: dict[str, str] = {
    "N_CTX": "ctx_size", "N_THREADS": "threads", "N_THREADS_BATCH": "threads_batch", "N_GPU_LAYERS": "gpu_layers",
    "N_BATCH": "batch_size", "USE_MMAP": "mmap", "USE_MLOCK": "mlock", "TYPE_K": "cache_type_k",
    "TYPE_V": "cache_type_v", "ROPE_FREQ_BASE": "rope_freq_base", "ROPE_FREQ_SCALE": "rope_freq_scale",
    "MAIN_GPU": "main_gpu", "SPLIT_MODE": "split_mode", "TENSOR_SPLIT": "tensor_split", "NUMA": "numa",
    "LORA_PATH": "lora", "LAST_N_TOKENS_SIZE": "repeat_last_n", "MAX_TOKENS": "answer_tokens",
    "EXIT_TIMEOUT": "command_timeout", "STREAM": "raw_answers", "AUTOGEN_GRAMMAR": "grammar",
    **{name.upper(): name for name in SamplingOptions.model_fields if name != "answer_tokens"},
}  # fmt: skip
"""`LLAMA_NAME` as pocket-ASI has it -> the key here. LLAMA_MODEL_PATH is beside them: it names a file."""

LLAMA_UNUSED = frozenset({
    "VOCAB_ONLY", "LOGITS_ALL", "EMBEDDING", "OFFLOAD_KQV", "CHAT_FORMAT", "LORA_BASE", "LORA_SCALE", "POOLING_TYPE",
    "ROPE_SCALING_TYPE", "YARN_EXT_FACTOR", "YARN_ATTN_FACTOR", "YARN_BETA_FAST", "YARN_BETA_SLOW", "YARN_ORIG_CTX",
    "TFS_Z", "LOGPROBS", "TOP_LOGPROBS", "TOKEN_BUFFER",
    "VERBOSE",
})  # fmt: skip
"""Those of pocket-ASI that have no counterpart here: the user is told."""

_TYPES = {"0": "f32", "1": "f16", "2": "q4_0", "3": "q4_1", "6": "q5_0", "7": "q5_1", "8": "q8_0", "20": "iq4_nl",
          "30": "bf16"}  # fmt: skip
LLAMA_SPELLED: dict[str, dict[str, str]] = {
    "cache_type_k": _TYPES, "cache_type_v": _TYPES,
    "split_mode": {"0": "none", "1": "layer", "2": "row"},
    "numa": {"1": "distribute", "true": "distribute", "2": "isolate", "3": "numactl"},
    "gpu_layers": {"auto": "-1", "all": "-1", "-2": "-1"}, "top_k": {"-1": "0"},
    "grammar": {"false": "grammar.gbnf", "0": "grammar.gbnf"},
    # llama.cpp's server ends at once with fewer than it has slots.
    "batch_size": {str(few): "32" for few in range(1, 32)},
}  # fmt: skip
"""How pocket-ASI and llama.cpp spell values, by ggml's numbers mostly -> how they are spelled here."""
LLAMA_UNSET: dict[str, frozenset[str]] = {
    "ctx_size": frozenset({"0"}), "answer_tokens": frozenset({"-1", "0"}), "threads": frozenset({"-1", "0"}),
    "threads_batch": frozenset({"-1", "0"}), "batch_size": frozenset({"0"}), "numa": frozenset({"0", "false"}),
    "rope_freq_base": frozenset({"0", "0.0"}), "rope_freq_scale": frozenset({"0", "0.0"}),
    "seed": frozenset({"-1", "4294967295"}), "grammar": frozenset({"true", "1"}),
}  # fmt: skip
"""What llama.cpp takes for "whatever is best", for another one each time, or off: the same as not given."""
LLAMA_OTHERS = ("ARG_", "CACHE", "LOG_", "SERVER_", "SHOW_INTRO", "DEFAULT_GOAL", "API_KEY", "OFFLINE", "CPP_", "TRACE",
                "SET_ROWS", "GRAPH_", "KV_CACHE_", "BATCH_DEBUG", "ATTN_", "MEDIA_", "APP_", "CLOUD_", "INDEX_",
                "PARSE_", "STACK_")  # fmt: skip
"""How the names begin that llama.cpp and programs called after llamas read themselves, or that we read elsewhere."""
