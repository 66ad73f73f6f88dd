"""`provider/name`, read strictly: names may contain `/`."""

import difflib

from stockade.core.data import Data
from stockade.core.errors import UsageError

AUTO = "auto"
PROVIDERS = ("embedded", "gguf", "llama-server", "llamafile", "ollama", "openai", "scripted")
LATER = ("anthropic", "azure")


class ModelName(Data):
    """A provider and the name it knows the model by."""

    provider: str
    name: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.name}"


def parse_name(spec: str) -> ModelName:
    """UsageError, with the nearest form, when it is not one. `auto` is not a name."""
    provider, slash, name = spec.strip().partition("/")
    known = (*PROVIDERS, *LATER)
    if provider not in known:
        near = difflib.get_close_matches(provider.lower(), known, n=1)
        if not slash:
            raise UsageError(f"not a model: '{spec}'", f"write PROVIDER/NAME; providers: {', '.join(PROVIDERS)}")
        hint = f"did you mean {near[0]}/{name}?" if near else f"providers: {', '.join(PROVIDERS)}"
        raise UsageError(f"unknown model provider '{provider}'", hint)
    if provider in LATER:
        raise UsageError(
            f"the provider '{provider}' comes with a later version", "use openai/NAME with OPENAI_BASE_URL meanwhile"
        )
    if not name:
        raise UsageError(f"the model '{spec}' has no name", f"write {provider}/NAME")
    return ModelName(provider=provider, name=name)
