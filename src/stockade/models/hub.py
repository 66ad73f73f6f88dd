"""The Hugging Face hub, by huggingface_hub: what is in a repository, where a file is, what is in the hub's own cache.

The bytes come by our HttpSource: the library takes wrong bytes of the right size, begins again after a cut in the first
10 MB, and continues nothing that another source began. It is imported only when it is used (0.25 s), by `aside`.
"""

import functools
import logging
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import urlsplit

import anyio
import anyio.from_thread
import anyio.lowlevel
import httpx2

from stockade import __version__
from stockade.core.data import Data
from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.catalogue import CatalogueModel
from stockade.models.http import tls_context
from stockade.models.model_cache import size_of
from stockade.models.net import bearer, is_loopback
from stockade.models.progress import OnBytes
from stockade.models.sources import MAX_LISTING_BYTES, HttpSource, NotReached

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo
    from huggingface_hub.errors import HfHubHTTPError

SILENCE_S = 20.0
"""For the library's own requests: to connect, and between two pieces of an answer."""
ANSWER_S = 90.0
"""For one question to the hub with all its redirects."""

_PREFERRED = ("q4_k_m", "q4_k_s", "q5_k_m", "q4_0", "q8_0")
_PIECE = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_WAY_OUT = "for one with conditions: accept them on its page, and set HF_TOKEN or log in with hf auth login"
_PREPARING = threading.Lock()
_T = TypeVar("_T")


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
        url, headers = await aside(lambda: (_url(self._name), bearer(token_to_send())))
        try:
            await HttpSource(self.address, url, headers).fetch(part, size_bytes, on_bytes)
        except NotReached as error:
            if re.search(r" answered (401|403|404) ", error.message):
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

    When the hub cannot be asked, what its cache knows. UsageError when the choice is the person's, ModelUnavailable
    when neither has such a file.
    """
    reason = "HF_HUB_OFFLINE is set"
    if not _is_offline():
        try:
            return await aside(lambda: _asked(name))
        except NotReached as error:
            reason = error.message
    if found := await aside(lambda: _remembered(name)):
        return found
    raise ModelUnavailable(f"the repository {name.repo_id} cannot be had: {reason}", "the hub's cache has none of it")


async def cached_files(model: CatalogueModel) -> list[Path]:
    """Files of the model's size that the hub's own cache (HF_HUB_CACHE) has of its `hf:` sources. Nobody compared a
    hash, so of a model without one there are none.
    """
    names = [HubName.parse(form[3:]) for form in model.sources if form.startswith("hf:") and model.sha256]
    with suppress(NotReached):
        return await aside(lambda: _cached(names, model.size_bytes)) if names else []
    return []


def _cached(names: Iterable[HubName], size_bytes: int) -> list[Path]:
    from huggingface_hub import try_to_load_from_cache

    found: dict[Path, None] = {}
    for name, revision in [(one, revision) for one in names for revision in (one.revision, "main")]:
        with suppress(OSError, ValueError):
            path = try_to_load_from_cache(name.repo_id, name.file, revision=revision)
            if isinstance(path, str) and size_of(Path(path)) == size_bytes:
                found[Path(path).resolve()] = None
    return list(found)


def _url(name: HubName) -> str:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.errors import HFValidationError

    try:
        return hf_hub_url(name.repo_id, name.file, revision=name.revision, endpoint=endpoint())
    except HFValidationError:
        raise _no_repository(name.repo_id) from None


def _asked(name: HubName) -> CatalogueModel:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = HfApi(endpoint(), token=token_to_send() or False, library_name="stockade", library_version=__version__)
    try:
        info = api.model_info(name.repo_id, revision=name.revision, files_metadata=True, timeout=SILENCE_S)
        return _described(name, info)
    except HFValidationError:
        raise _no_repository(name.repo_id) from None
    except HfHubHTTPError as error:
        raise _refused(name, error) from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise NotReached(f"{_host()} was not reached: {_plain(str(error)) or type(error).__name__}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        words = _plain(f"{type(error).__name__} {error}")
        raise ModelUnavailable(f"the hub's answer on {name.repo_id} is not understood: {words}") from None


def _refused(name: HubName, error: "HfHubHTTPError") -> ModelUnavailable:
    from huggingface_hub.errors import GatedRepoError, RevisionNotFoundError

    status = error.response.status_code
    answered = f"{_host()} answered {status} {_plain(error.response.reason_phrase)}"
    if status >= 500:
        return NotReached(answered)
    if isinstance(error, RevisionNotFoundError):
        return ModelUnavailable(f"the repository {name.repo_id} has no revision '{name.revision}': {answered}")
    if isinstance(error, GatedRepoError):
        answered = f"it has conditions, {answered}"
    hint = _WAY_OUT if status in (401, 403, 404) else None
    return ModelUnavailable(f"the repository {name.repo_id} cannot be had: {answered}", hint)


def _described(name: HubName, info: "ModelInfo") -> CatalogueModel:
    files = {item.rfilename: item for item in info.siblings or []}
    item = files[_chosen(name, list(files))]
    sha256, commit = str(item.lfs.sha256 if item.lfs else ""), str(info.sha)
    if not item.lfs or not _SHA256.fullmatch(sha256) or not re.fullmatch(r"[0-9a-f]{7,64}", commit):
        raise ModelUnavailable(f"the hub gives no sha256 for {item.rfilename}", "fetch it by its https: address")
    licence = "".join(c for c in str(getattr(info.card_data, "license", None) or "") if c.isprintable())[:60]
    return _model(name, commit, item.rfilename, item.lfs.size, sha256, licence)


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
    file = _chosen(name, list(files))
    path = files[file]
    sha256 = path.readlink().name if path.is_symlink() else ""
    if not _SHA256.fullmatch(sha256):
        raise ModelUnavailable(f"the hub's cache does not say the sha256 of {path}", "pull that path")
    return _model(name, folder.name, file, path.stat().st_size, sha256)


def _model(name: HubName, commit: str, file: str, size_bytes: int, sha256: str, licence: str = "") -> CatalogueModel:
    return CatalogueModel.stranger(
        name.owner, name.repo, file.rpartition("/")[2], size_bytes=size_bytes, sha256=sha256, licence=licence,
        source=f"hf:{name.repo_id}@{commit}/{file}",
    )  # fmt: skip


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
        found = [file for file in whole if kind in file.lower()]
        if len(found) == 1:
            return found[0]
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
    """True where the person has said that the hub is not to be asked."""
    chosen = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return chosen.lower() in {"1", "true", "yes", "on"}


def token_to_send() -> str | None:
    """The person's, of HF_TOKEN or kept by `hf auth login`. Blocking: the library may renew it.

    None where it would go over plain HTTP. That it does not go to where the hub redirects is httpx2's doing.
    """
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import OIDCError

    is_safe = endpoint().startswith("https:") or is_loopback(endpoint())
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


@functools.cache
def _prepare() -> None:
    """Once per process. Left alone, the library fetches a list of coding agents and tells the hub which one runs us."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from huggingface_hub import constants, set_client_factory
        from huggingface_hub.utils.logging import set_verbosity
    constants.HF_HUB_DISABLE_TELEMETRY = True
    set_verbosity(logging.CRITICAL)
    set_client_factory(_client)


def _client() -> httpx2.Client:
    """With the certificates and proxies of our other requests, and answers that end."""
    return httpx2.Client(
        verify=tls_context(), follow_redirects=True, timeout=SILENCE_S, headers={"Accept-Encoding": "identity"},
        event_hooks={"response": [_bound]},
    )  # fmt: skip


def _bound(response: httpx2.Response) -> None:
    """No more than MAX_LISTING_BYTES of an answer, and nothing that unfolds."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise NotReached(f"{_host()} answers compressed, which was not asked for")
    body, stream = bytearray(), cast(httpx2.SyncByteStream, response.stream)
    for block in stream:
        body += block
        if len(body) > MAX_LISTING_BYTES:
            raise NotReached(f"{_host()} answers with more than {MAX_LISTING_BYTES} bytes")
    stream.close()
    response.stream = httpx2.ByteStream(bytes(body))


async def aside(work: Callable[[], _T]) -> _T:
    """What `work` returns, done in a thread that is left behind when this is cancelled, or after ANSWER_S.

    A thread of anyio's would be waited for when the process ends: a hub that is silent would hold Ctrl-C.
    """
    done, loop, outcome = anyio.Event(), anyio.lowlevel.current_token(), Future[_T]()

    def run() -> None:
        try:
            with _PREPARING:
                _prepare()
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001  raised again by result()
            outcome.set_exception(error)
        with suppress(anyio.RunFinishedError):
            anyio.from_thread.run_sync(done.set, token=loop)

    threading.Thread(target=run, name="stockade-hub", daemon=True).start()
    with anyio.move_on_after(ANSWER_S):
        await done.wait()
    if not outcome.done():
        raise NotReached(f"{_host()} did not answer in {ANSWER_S:.0f} s")
    return outcome.result()


def _plain(text: str) -> str:
    """Words of others on one line."""
    return "".join(c if c.isprintable() else " " for c in text)[:200]
