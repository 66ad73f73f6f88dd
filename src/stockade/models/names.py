"""`provider/name`, read strictly: names may contain `/`."""

import difflib

from stockade.core.data import Data
from stockade.core.errors import UsageError

AUTO = "auto"
FILES = ("embedded", "gguf", "scripted")
SERVERS = ("llama-server", "llamafile", "ollama", "vllm", "lm-studio", "openai", "azure", "anthropic")
PROVIDERS = (*FILES, *SERVERS)
STARTED = ("llama-server", "llamafile")
"""Those that we also start, when the name is a path."""


class ModelName(Data):
    """A provider and the name it knows the model by."""

    provider: str
    name: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.name}"

    @property
    def is_path(self) -> bool:
        """A server to be started from a file: `llamafile//opt/x.llamafile`, `llama-server/~/m.gguf`."""
        return self.provider in STARTED and self.name.startswith(("/", "./", "../", "~"))


def parse_name(spec: str) -> ModelName:
    """UsageError, with the nearest form, when it is not one. `auto` is not a name."""
    provider, slash, name = spec.strip().partition("/")
    if provider not in PROVIDERS:
        near = difflib.get_close_matches(provider.lower(), PROVIDERS, n=1)
        if not slash:
            raise UsageError(f"not a model: '{spec}'", f"write PROVIDER/NAME; providers: {', '.join(PROVIDERS)}")
        hint = f"did you mean {near[0]}/{name}?" if near else f"providers: {', '.join(PROVIDERS)}"
        raise UsageError(f"unknown model provider '{provider}'", hint)
    if not name:
        raise UsageError(f"the model '{spec}' has no name", f"write {provider}/NAME")
    return ModelName(provider=provider, name=name)
