"""The Hugging Face hub by its own library: what is in a repository, and the user's token.

The bytes come by fetch.py: since huggingface_hub 2 a download that was killed begins again (it writes to a file of that
process alone), and no sha256 is compared. The library is imported only when the hub is asked (0.25 s).
"""

import os
import re
import warnings
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import anyio.to_thread
import httpx2

from stockade.core.data import Data
from stockade.core.errors import ModelUnavailable, UsageError
from stockade.core.text import one_line
from stockade.models.http import tls_context
from stockade.models.local.catalogue import CatalogueModel
from stockade.models.local.download import REACH_TIMEOUT_S, NotReached, Source, download
from stockade.models.providers import bearer, is_own
from stockade.models.settings import OnBytes

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
            file = rest
        else:
            repo, _, revision = repo.partition("@")
        repo_id = f"{owner}/{repo}"
        if not _REPOSITORY.fullmatch(repo_id) or "--" in repo_id or ".." in repo_id:
            raise UsageError(f"not a repository of the hub: '{text}'", "write hf:OWNER/REPO or hf:OWNER/REPO/FILE")
        return cls(owner=owner, repo=repo, revision=revision or "main", file=file)


def hub_source(rest: str) -> Source:
    """`OWNER/REPO[@REVISION]/FILE`, on the hub or on the mirror that HF_ENDPOINT names. NotReached when it is not to be
    asked.
    """
    if _is_offline():
        raise NotReached(f"hf:{rest} was not asked: HF_HUB_OFFLINE is set")
    name = HubName.parse(rest)
    if not name.file:
        raise UsageError(f"not a file of the hub: 'hf:{rest}'", "write hf:OWNER/REPO/FILE")
    url = f"{endpoint()}/{name.repo_id}/resolve/{quote(name.revision, safe='')}/{quote(name.file)}"
    address = f"{_host()}/{name.repo_id}"

    async def fetch(part: Path, size_bytes: int, on_bytes: OnBytes) -> None:
        headers = bearer(await anyio.to_thread.run_sync(token_to_send))
        try:
            await download(url, headers, address, part, size_bytes, on_bytes)
        except NotReached as error:
            if error.status in (401, 403, 404):
                raise NotReached(f"{error.message} ({_WAY_OUT})") from None
            raise

    return Source(address, fetch)


async def find_file(name: HubName) -> CatalogueModel:
    """What the hub says of this file; of a repository without a file, of its Q4_K_M one or the only one. Its source is
    pinned to a commit.

    UsageError when the choice is the user's, ModelUnavailable when it has no such file, or cannot be asked.
    """
    try:
        return await anyio.to_thread.run_sync(_listed, name, abandon_on_cancel=True)
    except NotReached as error:
        raise ModelUnavailable(f"the repository {name.repo_id} cannot be had: {error.message}", error.hint) from None


def _listed(name: HubName) -> CatalogueModel:
    """The library's answer. Blocking, for REACH_TIMEOUT_S of silence at most. NotReached where it has none."""
    from huggingface_hub import HfApi, constants, set_client_factory
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, OfflineModeIsEnabled, RevisionNotFoundError

    if _is_offline():
        raise NotReached("HF_HUB_OFFLINE is set")
    constants.HF_HUB_DISABLE_TELEMETRY = True
    set_client_factory(lambda: httpx2.Client(follow_redirects=True, verify=tls_context()))
    try:
        about = HfApi(endpoint(), token=token_to_send() or False).model_info(
            name.repo_id, revision=name.revision, files_metadata=True, timeout=REACH_TIMEOUT_S
        )
        files = {item.rfilename: item for item in about.siblings or ()}
        file = _chosen(name, list(files))
        lfs, commit = files[file].lfs, str(about.sha)
        if not lfs or not _SHA256.fullmatch(str(lfs.sha256)) or not _COMMIT.fullmatch(commit):
            raise ModelUnavailable(f"the hub gives no sha256 for {file}", "fetch it by its https: address")
        licence = one_line(str(getattr(about.card_data, "license", None) or ""), 60)
        path = (name.owner, name.repo, file.rpartition("/")[2])
        source = f"hf:{name.repo_id}@{commit}/{file}"
        size, digest = lfs.size, str(lfs.sha256)
        return CatalogueModel.stranger(*path, size_bytes=size, sha256=digest, licence=licence, source=source)
    except RevisionNotFoundError:
        raise ModelUnavailable(f"the repository {name.repo_id} has no revision '{name.revision}'") from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        answered = f"{_host()} answered {status} {one_line(error.response.reason_phrase, 200)}"
        if status >= 500:
            raise NotReached(answered) from None
        conditions = "it has conditions, " if isinstance(error, GatedRepoError) else ""
        hint = _WAY_OUT if status in (401, 403, 404) else None
        raise ModelUnavailable(f"the repository {name.repo_id} cannot be had: {conditions}{answered}", hint) from None
    except (OfflineModeIsEnabled, httpx2.HTTPError) as error:
        raise NotReached(f"{_host()} was not reached: {one_line(str(error), 200) or type(error).__name__}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = one_line(f"{type(error).__name__} {error}", 200)
        raise ModelUnavailable(f"the hub's answer on {name.repo_id} is not understood: {message}") from None


def _chosen(name: HubName, files: list[str]) -> str:
    """The file that is meant, of a repository's."""
    shown, ours = name.repo_id, sorted(file for file in files if file.endswith(".gguf"))
    if name.file:
        if name.file not in files:
            raise ModelUnavailable(f"{shown} has no file '{name.file}'", ", ".join(ours[:12]) or None)
        if _PIECE.search(name.file):
            raise UsageError(f"{name.file} is one piece of several", "choose a file that is whole, or merge the pieces")
        return name.file
    whole = [file for file in ours if not _PIECE.search(file) and "mmproj" not in file]
    for kind in ("", *_PREFERRED):
        matching = [file for file in whole if kind in file.lower()]
        if len(matching) == 1:
            return matching[0]
    if not whole:
        raise ModelUnavailable(f"{shown} has no GGUF file that is whole", "repositories with GGUF files end in -GGUF")
    raise UsageError(f"{shown} has {len(whole)} models", f"name one: {', '.join(whole[:12])}")


def endpoint() -> str:
    """Of the hub, or of the mirror that HF_ENDPOINT names."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def _host() -> str:
    return urlsplit(endpoint()).hostname or endpoint()


def _is_offline() -> bool:
    """True where the user has said that the hub is not to be asked."""
    chosen = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return chosen.lower() in {"1", "true", "yes", "on"}


def token_to_send() -> str | None:
    """The user's, of HF_TOKEN or kept by `hf auth login`; None where it would go over plain HTTP. Blocking: the library
    may renew it. That it does not go to where the hub redirects is httpx2's doing.
    """
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import OIDCError

    token = None
    if not constants.HF_HUB_DISABLE_IMPLICIT_TOKEN and (endpoint().startswith("https:") or is_own(endpoint())):
        with suppress(OIDCError, httpx2.HTTPError, OSError, ValueError):  # most files need none
            token = get_token()
    if token and not (token.isascii() and token.isprintable()):
        raise UsageError("the token for the hub has characters that no token has", "mend HF_TOKEN")
    return token
