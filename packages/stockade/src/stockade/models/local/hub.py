"""The Hugging Face hub: what is in a repository, where a file is, and what the hub's own cache has of it.

huggingface_hub knows the user's token and the cache; it is imported only when they are wanted (0.25 s). Listing and
bytes come by our own requests (sources.py): the library's cannot be cancelled, take wrong bytes of the right size,
begin again after a cut in the first 10 MB, and continue nothing that another source began.
"""

import json
import os
import re
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import anyio
import anyio.to_thread
import httpx2

from stockade.core.data import Data
from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.local.catalogue import CatalogueModel
from stockade.models.local.folder import size_of
from stockade.models.local.sources import HttpSource, NotReached, Refusal, listing_at
from stockade.models.providers import bearer, is_own
from stockade.models.settings import OnBytes

ANSWER_S = 90.0
"""For a listing with all its redirects."""

_PREFERRED = ("q4_k_m", "q4_k_s", "q5_k_m", "q4_0", "q8_0")
_PIECE = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_SHA256, _COMMIT = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{7,64}")
_REPOSITORY = re.compile(r"[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95}", re.ASCII)
warnings.filterwarnings("ignore", module="huggingface_hub")  # advice on its own variables, amid our lines
_WAY_OUT = "for one with conditions: accept them on its page, and set HF_TOKEN or log in with hf auth login"


class HubName(Data):
    """`OWNER/REPO[@REVISION][/FILE]`."""

    owner: str
    repo: str
    revision: str = "main"
    file: str = ""

    @property
    def repo_id(self) -> str:
        """As the library wants it, and as people read it."""
        return f"{self.owner}/{self.repo}"

    @classmethod
    def parse(cls, text: str) -> "HubName":
        """Of the short form, or of an address on the hub's site. UsageError otherwise."""
        for site in (f"{endpoint()}/", "https://huggingface.co/", "https://hf.co/"):
            text = text.removeprefix(site)
        owner, repo, file = (*text.split("?")[0].split("/", 2), "", "")[:3]
        kind, _, rest = file.partition("/")
        revision, _, rest = rest.partition("/")
        if kind in ("resolve", "blob") and rest:
            return cls(owner=owner, repo=repo, revision=revision, file=rest)
        repo, _, revision = repo.partition("@")
        if not (owner and repo):
            raise _no_repository(text)
        return cls(owner=owner, repo=repo, revision=revision or "main", file=file)


class HubSource:
    """One file on the hub, or on the mirror that HF_ENDPOINT names."""

    extra_bytes = 0

    def __init__(self, name: HubName) -> None:
        self.address = f"{_host()}/{name.repo_id}"
        self._name = name

    async def fetch(self, part: Path, size_bytes: int, on_bytes: OnBytes) -> None:
        try:
            headers = bearer(await _token())
            await HttpSource(self.address, _url(self._name), headers).fetch(part, size_bytes, on_bytes)
        except Refusal as error:
            if error.status in (401, 403, 404):
                raise NotReached(f"{error.message} ({_WAY_OUT})") from None
            raise


def hub_source(rest: str) -> HubSource:
    """`OWNER/REPO[@REVISION]/FILE`. NotReached when the hub is not to be asked."""
    if _is_offline():
        raise NotReached(f"hf:{rest} was not asked: HF_HUB_OFFLINE is set")
    name = HubName.parse(rest)
    if not name.file:
        raise UsageError(f"not a file of the hub: 'hf:{rest}'", "write hf:OWNER/REPO/FILE")
    return HubSource(name)


async def find_file(name: HubName) -> CatalogueModel:
    """What the hub says of this file; of a repository without a file, of its Q4_K_M one or the only one. Its source is
    pinned to a commit.

    When the hub cannot be asked, what its cache knows. UsageError when the choice is the user's, ModelUnavailable
    when neither has such a file.
    """
    reason = "HF_HUB_OFFLINE is set"
    if not _is_offline():
        try:
            return await _asked(name)
        except NotReached as error:
            reason = error.message
    if result := await anyio.to_thread.run_sync(_remembered, name):
        return result
    raise ModelUnavailable(f"the repository {name.repo_id} cannot be had: {reason}", "the hub's cache has none of it")


async def cached_files(model: CatalogueModel) -> list[Path]:
    """Files of the model's size that the hub's own cache (HF_HUB_CACHE) has of its `hf:` sources. Nobody compared a
    hash, so of a model without one there are none.
    """
    names = [HubName.parse(form[3:]) for form in model.sources if form.startswith("hf:") and model.sha256]
    return await anyio.to_thread.run_sync(_cached, names, model.size_bytes) if names else []


def _cached(names: Iterable[HubName], size_bytes: int) -> list[Path]:
    from huggingface_hub import try_to_load_from_cache

    paths: dict[Path, None] = {}
    for name, revision in [(one, revision) for one in names for revision in (one.revision, "main")]:
        with suppress(OSError, ValueError):
            path = try_to_load_from_cache(name.repo_id, name.file, revision=revision)
            if isinstance(path, str) and size_of(Path(path)) == size_bytes:
                paths[Path(path).resolve()] = None
    return list(paths)


def _remembered(name: HubName) -> CatalogueModel | None:
    """By the hub's cache: a folder is named by its commit, what its links point to by the sha256 that the hub gave."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import IncompleteSnapshotError

    try:
        folder = Path(snapshot_download(name.repo_id, revision=name.revision, local_files_only=True))
    except IncompleteSnapshotError as error:
        folder = Path(error.snapshot_path)
    except (OSError, ValueError):
        return None
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    if name.file not in files if name.file else not any(file.endswith(".gguf") for file in files):
        return None
    path = files[file := _chosen(name, list(files))]
    sha256 = path.readlink().name if path.is_symlink() else ""
    if not _SHA256.fullmatch(sha256):
        raise ModelUnavailable(f"the hub's cache does not say the sha256 of {path}", "pull that path")
    return _model(name, folder.name, file, path.stat().st_size, sha256)


async def _asked(name: HubName) -> CatalogueModel:
    revision = quote(name.revision, safe="")
    url = f"{endpoint()}/api/models/{_checked(name).repo_id}/revision/{revision}?blobs=true"
    try:
        with anyio.fail_after(ANSWER_S):
            listing = json.loads(await listing_at(url, bearer(await _token()), _host()))
        return _described(name, listing)
    except TimeoutError:
        raise NotReached(f"{_host()} did not answer in {ANSWER_S:.0f} s") from None
    except Refusal as error:
        raise _refused(name, error) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = _plain(f"{type(error).__name__} {error}")
        raise ModelUnavailable(f"the hub's answer on {name.repo_id} is not understood: {message}") from None


def _refused(name: HubName, error: Refusal) -> ModelUnavailable:
    answered = _plain(error.message)
    if error.status >= 500:
        return NotReached(answered)
    if error.code == "RevisionNotFound":
        return ModelUnavailable(f"the repository {name.repo_id} has no revision '{name.revision}': {answered}")
    if error.code == "GatedRepo":
        answered = f"it has conditions, {answered}"
    hint = _WAY_OUT if error.status in (401, 403, 404) else None
    return ModelUnavailable(f"the repository {name.repo_id} cannot be had: {answered}", hint)


def _described(name: HubName, listing: dict[str, Any]) -> CatalogueModel:
    files = {item["rfilename"]: item.get("lfs") or {} for item in listing["siblings"]}
    file, commit = _chosen(name, list(files)), str(listing["sha"])
    sha256 = str(files[file].get("sha256"))
    if not _SHA256.fullmatch(sha256) or not _COMMIT.fullmatch(commit):
        raise ModelUnavailable(f"the hub gives no sha256 for {file}", "fetch it by its https: address")
    card = listing.get("cardData")
    licence = _plain(str((card.get("license") if isinstance(card, dict) else None) or ""))[:60]
    return _model(name, commit, file, files[file]["size"], sha256, licence)


def _model(name: HubName, commit: str, file: str, size_bytes: int, sha256: str, licence: str = "") -> CatalogueModel:
    return CatalogueModel.stranger(
        name.owner, name.repo, file.rpartition("/")[2], size_bytes=size_bytes, sha256=sha256, licence=licence,
        source=f"hf:{name.repo_id}@{commit}/{file}",
    )  # fmt: skip


def _url(name: HubName) -> str:
    return f"{endpoint()}/{_checked(name).repo_id}/resolve/{quote(name.revision, safe='')}/{quote(name.file)}"


def _checked(name: HubName) -> HubName:
    """UsageError for what the hub has no repositories named like."""
    if not _REPOSITORY.fullmatch(name.repo_id) or "--" in name.repo_id or ".." in name.repo_id:
        raise _no_repository(name.repo_id)
    return name


def _chosen(name: HubName, files: list[str]) -> str:
    shown = name.repo_id
    if name.file:
        if name.file not in files:
            raise ModelUnavailable(f"{shown} has no file '{name.file}'", _names(files) or None)
        if _PIECE.search(name.file):
            raise UsageError(f"{name.file} is one piece of several", "choose a file that is whole, or merge the pieces")
        return name.file
    whole = [file for file in files if file.endswith(".gguf") and not _PIECE.search(file) and "mmproj" not in file]
    for kind in ("", *_PREFERRED):
        matching = [file for file in whole if kind in file.lower()]
        if len(matching) == 1:
            return matching[0]
    if not whole:
        raise ModelUnavailable(f"{shown} has no GGUF file that is whole", "repositories with GGUF files end in -GGUF")
    raise UsageError(f"{shown} has {len(whole)} models", f"name one: {_names(whole)}")


def _names(files: list[str]) -> str:
    return ", ".join(sorted(file for file in files if file.endswith(".gguf"))[:12])


def _no_repository(text: str) -> UsageError:
    return UsageError(f"not a repository of the hub: '{text}'", "write hf:OWNER/REPO or hf:OWNER/REPO/FILE")


def endpoint() -> str:
    """Of the hub, or of the mirror that HF_ENDPOINT names."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def _host() -> str:
    return urlsplit(endpoint()).hostname or endpoint()


def _is_offline() -> bool:
    """True where the user has said that the hub is not to be asked."""
    chosen = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return chosen.lower() in {"1", "true", "yes", "on"}


async def _token() -> str | None:
    return await anyio.to_thread.run_sync(token_to_send)


def token_to_send() -> str | None:
    """The user's, of HF_TOKEN or kept by `hf auth login`. Blocking: the library may renew it.

    None where it would go over plain HTTP. That it does not go to where the hub redirects is httpx2's doing.
    """
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import OIDCError

    is_safe = endpoint().startswith("https:") or is_own(endpoint())
    if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN or not is_safe:
        return None
    try:
        token = get_token()
    except (OIDCError, httpx2.HTTPError) as error:
        raise ModelUnavailable(f"the hub gives no token: {_plain(str(error))}", "or unset HF_OIDC_RESOURCE") from None
    except (OSError, ValueError):
        return None  # a token that cannot be read is none: most files need no token
    if token and not (token.isascii() and token.isprintable()):
        raise UsageError("the token for the hub has characters that no token has", "mend HF_TOKEN")
    return token


def _plain(text: str) -> str:
    """Words of others on one line."""
    return "".join(c if c.isprintable() else " " for c in text)[:200]
