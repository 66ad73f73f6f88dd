"""Runs a command as a user without rights, for whom our Python is reachable wherever it is installed."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

UID = 43210
"""An id nobody uses, so that every process of it is ours."""

_SCRIPT = """
set -e
closed=$1 prefix=$2 home=$3 uid=$4 etc=$5; shift 5
if [ -n "$etc" ]; then
    for name in $(ls "$etc"); do [ -e /etc/$name ] && mount --bind "$etc/$name" "/etc/$name"; done
fi
if [ -n "$closed" ]; then
    mount -t tmpfs none /media && mkdir /media/python && mount --rbind "$prefix" /media/python
    mount -t tmpfs -o mode=755 none "$closed" && mkdir -p "$prefix" && mount --rbind /media/python "$prefix"
    umount -l /media
fi
exec setpriv --reuid "$uid" --regid "$uid" --clear-groups env -i PATH=/usr/bin:/bin HOME="$home" LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 "$@"
"""


def closed_parent(path: Path) -> str:
    """The topmost folder above `path` that others may not enter; "" when all are open."""
    return next((str(part) for part in reversed(path.parents) if not part.stat().st_mode & 0o001), "")


def run_as_ordinary_user(
    command: Sequence[str | Path], home: Path, timeout_s: float = 300, etc: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """With `home`, which is given to them, as HOME. Needs root, and makes its mounts in a namespace of its own.

    The files in `etc` take the place of the machine's.
    """
    assert os.geteuid() == 0
    os.chown(home, UID, UID)
    prefix = Path(sys.base_prefix).resolve()
    arguments = [closed_parent(prefix), prefix, home, str(UID), str(etc or ""), *command]
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", _SCRIPT, "sh", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
