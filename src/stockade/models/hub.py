"""The Hugging Face hub, by huggingface_hub: what is in a repository, where a file is, what is in the hub's own cache.

The bytes come by our HttpSource: the library takes wrong bytes of the right size, begins again after a cut in the first
10 MB, and continues nothing that another source began.
"""

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from stockade import __version__
from stockade.core.data import Data
from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models import hub_library
from stockade.models.hub_library import aside, endpoint, host, is_offline, plain, token_to_send
from stockade.models.net import bearer
from stockade.models.progress import OnBytes
from stockade.models.shelf import size_of
from stockade.models.sources import HttpSource, NotReached

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo
    from huggingface_hub.errors import HfHubHTTPError

_PREFERRED = ("q4_k_m", "q4_k_s", "q5_k_m", "q4_0", "q8_0")
_PIECE = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_FORM = "write hf:OWNER/REPO or hf:OWNER/REPO/FILE"
_WAY_OUT = "for one with conditions: accept them on its page, and set HF_TOKEN or log in with hf auth login"
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


def _no_repository(text: str) -> UsageError:
    return UsageError(f"not a repository of the hub: '{text}'", _FORM)


class HubSource:
    """One file on the hub, or on the mirror that HF_ENDPOINT names."""

    extra_bytes = 0

    def __init__(self, name: HubName) -> None:
        self.address = f"{host()}/{name.repo_id}"
        self._name = name

    async def fetch(self, part: Path, size_bytes: int, on_bytes: OnBytes) -> None:
        url, headers = await aside(lambda: (_address(self._name), bearer(token_to_send())))
        try:
            await HttpSource(self.address, url, headers).fetch(part, size_bytes, on_bytes)
        except NotReached as error:
            if re.search(r" answered (401|403|404) ", error.message):
                raise NotReached(f"{error.message} ({_WAY_OUT})") from None
            raise


def _address(name: HubName) -> str:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.errors import HFValidationError

    try:
        return hf_hub_url(name.repo_id, name.file, revision=name.revision, endpoint=endpoint())
    except HFValidationError:
        raise _no_repository(name.repo_id) from None


def hub_source(rest: str) -> HubSource:
    """`OWNER/REPO[@REVISION]/FILE`. NotReached when the hub is not to be asked."""
    if is_offline():
        raise NotReached(f"hf:{rest} was not asked: HF_HUB_OFFLINE is set")
    name = HubName.parse(rest)
    if not name.file:
        raise UsageError(f"not a file of the hub: 'hf:{rest}'", "write hf:OWNER/REPO/FILE")
    return HubSource(name)


async def cached_files(form: str, size_bytes: int) -> list[Path]:
    """Files of this size that the hub's own cache (HF_HUB_CACHE) has under the `hf:` form. Nobody compared a hash."""
    scheme, _, rest = form.partition(":")
    if scheme == "hf":
        with suppress(NotReached):
            return await aside(lambda: _cached(HubName.parse(rest), size_bytes))
    return []


def _cached(name: HubName, size_bytes: int) -> list[Path]:
    from huggingface_hub import try_to_load_from_cache

    found: dict[Path, None] = {}
    for revision in (name.revision, "main"):
        with suppress(OSError, ValueError):
            path = try_to_load_from_cache(name.repo_id, name.file, revision=revision)
            if isinstance(path, str) and size_of(Path(path)) == size_bytes:
                found[Path(path).resolve()] = None
    return list(found)


async def find_file(name: HubName) -> HubFile:
    """What the hub says of this file; of a repository without a file, of its Q4_K_M one or the only one.

    When the hub cannot be asked, what its cache knows. UsageError when the choice is the person's, ModelUnavailable
    when neither has such a file.
    """
    reason = "HF_HUB_OFFLINE is set"
    if not is_offline():
        try:
            return await aside(lambda: _asked(name))
        except NotReached as error:
            reason = error.message
    if found := await aside(lambda: _remembered(name)):
        return found
    raise ModelUnavailable(f"the repository {name.repo_id} cannot be had: {reason}", "the hub's cache has none of it")


def _asked(name: HubName) -> HubFile:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = HfApi(endpoint(), token=token_to_send() or False, library_name="stockade", library_version=__version__)
    try:
        info = api.model_info(name.repo_id, revision=name.revision, files_metadata=True, timeout=hub_library.SILENCE_S)
        return _described(name, info)
    except HFValidationError:
        raise _no_repository(name.repo_id) from None
    except HfHubHTTPError as error:
        raise _refused(name, error) from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise NotReached(f"{host()} was not reached: {plain(str(error)) or type(error).__name__}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        words = plain(f"{type(error).__name__} {error}")
        raise ModelUnavailable(f"the hub's answer on {name.repo_id} is not understood: {words}") from None


def _refused(name: HubName, error: "HfHubHTTPError") -> ModelUnavailable:
    from huggingface_hub.errors import GatedRepoError, RevisionNotFoundError

    status = error.response.status_code
    answered = f"{host()} answered {status} {plain(error.response.reason_phrase)}"
    if status >= 500:
        return NotReached(answered)
    if isinstance(error, RevisionNotFoundError):
        return ModelUnavailable(f"the repository {name.repo_id} has no revision '{name.revision}': {answered}")
    if isinstance(error, GatedRepoError):
        answered = f"it has conditions, {answered}"
    hint = _WAY_OUT if status in (401, 403, 404) else None
    return ModelUnavailable(f"the repository {name.repo_id} cannot be had: {answered}", hint)


def _described(name: HubName, info: "ModelInfo") -> HubFile:
    files = {item.rfilename: item for item in info.siblings or []}
    item = files[_chosen(name, list(files))]
    sha256, commit = str(item.lfs.sha256 if item.lfs else ""), str(info.sha)
    if not item.lfs or not _SHA256.fullmatch(sha256) or not re.fullmatch(r"[0-9a-f]{7,64}", commit):
        raise ModelUnavailable(f"the hub gives no sha256 for {item.rfilename}", "fetch it by its https: address")
    licence = str(getattr(info.card_data, "license", None) or "")
    return HubFile(
        source=f"hf:{name.repo_id}@{commit}/{item.rfilename}", file=item.rfilename, size_bytes=item.lfs.size,
        sha256=sha256, licence="".join(c for c in licence if c.isprintable())[:60],
    )  # fmt: skip


def _remembered(name: HubName) -> HubFile | None:
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
    return HubFile(
        source=f"hf:{name.repo_id}@{folder.name}/{file}", file=file, size_bytes=path.stat().st_size, sha256=sha256,
        licence="",
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
