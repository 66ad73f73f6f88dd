"""The Hugging Face hub: which file of a repository, its size, sha256 and licence; and where its bytes are.

Our own few requests and not huggingface_hub: that takes a file of the right size and the wrong bytes, and begins again
after a cut in the first ten megabytes (notes/stack.md section 8). HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE are known.
"""

import json
import os
import re
from typing import Any
from urllib.parse import quote, urlsplit

from stockade.core.data import Data
from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.net import is_loopback
from stockade.models.sources import HttpSource, NotReached, listing_at

_PREFERRED = ("q4_k_m", "q4_k_s", "q5_k_m", "q4_0", "q8_0")
_PIECE = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_FORM = "write hf:OWNER/REPO or hf:OWNER/REPO/FILE"
_SHA256 = re.compile(r"[0-9a-f]{64}")


class HubFile(Data):
    """One file as the hub describes it. `source` is its `hf:` form, pinned to a commit."""

    source: str
    file: str
    size_bytes: int
    sha256: str
    licence: str


class HubName(Data):
    """`OWNER/REPO[@REVISION][/FILE]`."""

    owner: str
    repo: str
    revision: str = "main"
    file: str = ""

    @classmethod
    def parse(cls, text: str) -> "HubName":
        """Of the short form, or of an address on the hub's site. UsageError otherwise."""
        for site in (f"{_endpoint()}/", "https://huggingface.co/", "https://hf.co/"):
            text = text.removeprefix(site)
        owner, repo, file = (*text.split("?")[0].split("/", 2), "", "")[:3]
        kind, _, rest = file.partition("/")
        revision, _, rest = rest.partition("/")
        if kind in ("resolve", "blob") and rest:
            return cls(owner=owner, repo=repo, revision=revision, file=rest)
        repo, _, revision = repo.partition("@")
        if not (owner and repo):
            raise UsageError(f"not a repository of the hub: '{text}'", _FORM)
        return cls(owner=owner, repo=repo, revision=revision or "main", file=file)


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def _headers() -> dict[str, str]:
    """The person's token, for the hub alone: it is not sent on to where the hub redirects, nor over plain HTTP."""
    token, endpoint = os.environ.get("HF_TOKEN"), _endpoint()
    return {"Authorization": f"Bearer {token}"} if token and (endpoint[:6] == "https:" or is_loopback(endpoint)) else {}


def _refuse_offline(what: str) -> None:
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes", "on"}:
        raise NotReached(f"{what} was not asked: HF_HUB_OFFLINE is set")


def hub_source(rest: str) -> HttpSource:
    """`OWNER/REPO[@REVISION]/FILE` on the hub, or on the mirror that HF_ENDPOINT names."""
    _refuse_offline(f"hf:{rest}")
    name = HubName.parse(rest)
    if not name.file:
        raise UsageError(f"not a file of the hub: 'hf:{rest}'", "write hf:OWNER/REPO/FILE")
    endpoint = _endpoint()
    return HttpSource(
        f"{urlsplit(endpoint).hostname or endpoint}/{name.owner}/{name.repo}",
        f"{endpoint}/{quote(name.owner)}/{quote(name.repo)}/resolve/{quote(name.revision)}/{quote(name.file)}",
        _headers(),
    )


async def find_file(name: HubName) -> HubFile:
    """What the hub says of this file; of a repository without a file, of its Q4_K_M one or the only one.

    UsageError when the choice is the person's, ModelUnavailable when the hub cannot be asked or has no such file.
    """
    shown = f"{name.owner}/{name.repo}"
    _refuse_offline(f"hf:{shown}")
    url = f"{_endpoint()}/api/models/{quote(name.owner)}/{quote(name.repo)}/revision/{quote(name.revision, safe='')}"
    try:
        body = await listing_at(f"{url}?blobs=true", _headers())
    except NotReached as error:
        way_out = "for one with conditions: accept them on its page and set HF_TOKEN"
        hint = way_out if re.search(r" (401|403|404) ", f"{error.message} ") else None
        raise ModelUnavailable(f"the repository {shown} cannot be had: {error.message}", hint) from None
    try:
        listed = json.loads(body)
        files = {str(item["rfilename"]): item for item in listed["siblings"]}
        commit = str(listed["sha"])
        chosen = files[_chosen(name, shown, list(files))]
        return _described(name, commit, chosen, str((listed.get("cardData") or {}).get("license") or ""))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelUnavailable(
            f"the hub's answer on {shown} is not understood: {type(error).__name__} {error}"
        ) from None


def _described(name: HubName, commit: str, item: dict[str, Any], licence: str) -> HubFile:
    stored = item.get("lfs") or {}
    sha256 = str(stored.get("sha256") or stored.get("oid") or "")
    if not _SHA256.fullmatch(sha256) or not re.fullmatch(r"[0-9a-f]{7,64}", commit):
        raise ModelUnavailable(f"the hub gives no sha256 for {item['rfilename']}", "fetch it by its https: address")
    return HubFile(
        source=f"hf:{name.owner}/{name.repo}@{commit}/{item['rfilename']}", file=str(item["rfilename"]),
        size_bytes=int(stored.get("size") or item["size"]), sha256=sha256,
        licence="".join(c for c in licence if c.isprintable())[:60],
    )  # fmt: skip


def _chosen(name: HubName, shown: str, files: list[str]) -> str:
    if name.file:
        if name.file not in files:
            raise ModelUnavailable(f"{shown} has no file '{name.file}'", _names(files) or None)
        if _PIECE.search(name.file):
            raise UsageError(f"{name.file} is one piece of several", "choose a file that is whole, or merge the pieces")
        return name.file
    whole = [file for file in files if file.endswith(".gguf") and not _PIECE.search(file) and "mmproj" not in file]
    if len(whole) == 1:
        return whole[0]
    for kind in _PREFERRED:
        found = [file for file in whole if kind in file.lower()]
        if len(found) == 1:
            return found[0]
    if not whole:
        raise ModelUnavailable(f"{shown} has no GGUF file that is whole", "repositories with GGUF files end in -GGUF")
    raise UsageError(f"{shown} has {len(whole)} models", f"name one: {_names(whole)}")


def _names(files: list[str]) -> str:
    return ", ".join(sorted(file for file in files if file.endswith(".gguf"))[:12])
