"""Ollama's registry: manifests that name layers by sha256, as OCI images do; the model layer is a GGUF file."""

import json
import re
from urllib.parse import urlsplit

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.catalogue import CatalogueModel
from stockade.models.sources import listing_at

HOST = "registry.ollama.ai"
_MODEL = "application/vnd.ollama.image.model"
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


async def find_layer(text: str) -> CatalogueModel:
    """`NAME[:TAG]`, `OWNER/NAME[:TAG]`, or with a registry of another address before it."""
    base, owner, name, tag = _parse(text)
    try:
        body = await listing_at(
            f"{base}/v2/{owner}/{name}/manifests/{tag}",
            {"Accept": "application/vnd.docker.distribution.manifest.v2+json, application/json"},
        )
        layers = json.loads(body)["layers"]
        layer = next(item for item in layers if item["mediaType"] == _MODEL)
        kind, _, digest = layer["digest"].partition(":")
        if kind != "sha256" or not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise ModelUnavailable(f"{text} is named by a digest that is not a sha256")
        url = f"{base}/v2/{owner}/{name}/blobs/sha256:{digest}"
        file = f"{name}-{tag}.gguf"
        return CatalogueModel.stranger("ollama", file, size_bytes=int(layer["size"]), sha256=digest, source=url)
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        raise ModelUnavailable(f"the registry's answer on '{text}' is not understood") from None


def _parse(text: str) -> tuple[str, str, str, str]:
    base = f"https://{HOST}"
    if "://" in text:
        parts = urlsplit(text)
        base, text = f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")
    elif text.count("/") == 2:
        host, _, text = text.partition("/")
        base = f"https://{host}"
    path, _, tag = text.partition(":")
    owner, _, name = path.rpartition("/")
    owner, tag = owner or "library", tag or "latest"
    if not all(_WORD.fullmatch(word) for word in (owner, name, tag)):
        raise UsageError(f"not a model of Ollama's registry: '{text}'", "write ollama:NAME:TAG")
    return base, owner, name, tag
