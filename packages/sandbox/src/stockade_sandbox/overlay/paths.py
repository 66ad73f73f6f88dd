"""Which folders of the host may be given to a bot at all."""

import functools
import os
import pwd
from pathlib import Path

from stockade_sandbox.errors import UsageError
from stockade_sandbox.processes import boxes_dir, own_folder

RECEIVED = "received"
"""In a box of ours: the folders that another machine has sent, a number each, to be given to its sandbox."""
FETCHED = "folders"
"""In Stockade's state: folders of other machines that runs of a fleet need here, each in a folder of its own."""
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot",
           "/run", "/lost+found", "/System", "/Library")  # fmt: skip
"""Nothing in these is anybody's project."""

_SHARED = ("/var", "/var/lib", "/var/tmp", "/tmp", "/opt", "/srv", "/mnt", "/media", "/home", "/Users", "/root")
"""A folder inside them may be given, they themselves not."""

_EXCEPT = ("/dev/shm", "/run/user")

_SECRETS = (".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config", ".local", ".password-store")
"""Below a home."""

_HINT = "give the folder of one project"


def checked_folder(host: str, private: Path) -> Path:
    """The real path of a folder that may be given to a bot. UsageError otherwise, naming the cause.

    `private` is where layers are kept; neither it nor Stockade's own folders may be inside, nor the folder inside them.
    """
    shown = repr(host)
    if not host or "\0" in host:
        raise UsageError(f"not a folder: {shown}", _HINT)
    try:
        path = Path(host).expanduser().resolve(strict=True)
    except FileNotFoundError as error:
        raise UsageError(f"no such folder: {shown}", "check the spelling") from error
    except (OSError, RuntimeError) as error:
        raise UsageError(f"cannot reach the folder {shown}: {error}", "check the path") from error
    if not path.is_dir():
        raise UsageError(f"not a folder: {shown}", "give the folder that the file is in")
    if not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"the folder {shown} cannot be read by you", "change its permissions or give another")
    if why := _forbidden(str(path), private):
        raise UsageError(f"the folder {shown} is not given to bots: {why}", _HINT)
    return path


def _holds(outer: str, inner: str) -> bool:
    """Whether a real path is, or is above, another."""
    return outer == inner or inner.startswith(outer.rstrip("/") + "/")


def _forbidden(path: str, private: Path) -> str | None:
    if path == "/":
        return "it is the whole machine"
    for home in homes():
        if _holds(path, home):
            return f"it is or holds the home {home}"
        for secret in _SECRETS:
            if path == f"{home}/{secret}" or (secret not in (".config", ".local") and _holds(f"{home}/{secret}", path)):
                return "it holds keys and settings"
    if path in _SHARED:
        return "everybody's files are in it"
    inside_system = [system for system in _SYSTEM if _holds(system, path)]
    if inside_system and not any(path != allowed and _holds(allowed, path) for allowed in _EXCEPT):
        return f"{inside_system[0]} belongs to the system"
    folder = Path(path).parent
    boxes = os.path.realpath(boxes_dir())
    if folder.name == RECEIVED and str(folder.parent.parent) == boxes:
        return None
    if str(folder.parent) == f"{os.path.dirname(boxes)}/{FETCHED}":
        return None
    for own in _own(private):
        if _holds(own, path) or _holds(path, own):
            return f"Stockade keeps its own files in {own}"
    return None


def homes(passwd: Path = Path("/etc/passwd")) -> set[str]:
    """Homes of people: of you, of root, of ordinary accounts. Service accounts name folders that are no homes."""
    changed_ns = passwd.stat().st_mtime_ns if passwd.exists() else 0
    known = (*_accounts(changed_ns), os.path.expanduser("~"))
    return {os.path.realpath(home) for home in known if os.path.isabs(home)} - {"/"}


@functools.lru_cache(maxsize=1)
def _accounts(_changed_ns: int) -> frozenset[str]:
    """Asked for again when the accounts' file has changed: it takes a hundred system calls."""
    return frozenset(one.pw_dir for one in pwd.getpwall() if one.pw_uid == 0 or 1000 <= one.pw_uid < 65534)


def _own(private: Path) -> set[str]:
    variables = ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")
    folders = _standard_folders(tuple(os.environ.get(name) for name in variables))
    return {os.path.realpath(folder) for folder in (*folders, str(private))}


@functools.lru_cache(maxsize=1)
def _standard_folders(_variables: tuple[str | None, ...]) -> tuple[str, ...]:
    """As long as the variables that name them stay the same."""
    return tuple(str(own_folder(kind)) for kind in ("state", "config", "data", "cache"))
