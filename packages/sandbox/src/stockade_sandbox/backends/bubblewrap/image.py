"""An image's root file system as a sandbox has it: a layer of its own over the unpacked one, thrown away with it."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from stockade_sandbox.backends.bubblewrap.argv import Writable
from stockade_sandbox.backends.feature_probe import overlay_check
from stockade_sandbox.backends.oci import Image
from stockade_sandbox.backends.rootfs import etc_files
from stockade_sandbox.errors import PolicyNotEnforceable, UsageError

_SETTINGS = {
    "etc/apt/apt.conf.d/00stockade": (
        'APT::Sandbox::User "root";\n'
        'DPkg::Post-Invoke {"find /usr -xdev -type f -perm 0 -exec chmod 755 {} + 2>/dev/null || true";};\n'
    ),
    "etc/dpkg/dpkg.cfg.d/stockade": "force-unsafe-io\n",
}
"""apt gives up its rights for a user of its own, and looks whether it has: here there are no others. dpkg makes a file
closed, and opens it by a change of mode that is not done where it would make it set-id (seccomp.FAKED).
"""


def begin_layer(
    image: Image, workdir: str, paths: Sequence[str], folder: Path, uid: int | None, *, networked: bool
) -> Writable:
    """In `folder`, which is new, for the user `uid` of this machine; None for our own. `paths`: where folders will be
    mounted; `networked`: names are asked of the agent. Blocks. UsageError where the image has something else at a
    path, PolicyNotEnforceable where no overlay can be.
    """
    for path in ("/proc", "/dev", *paths):
        for found in _above(image.root, path):
            if found.is_symlink() or (found.exists() and not found.is_dir()):
                raise UsageError(f"the image has no folder but something else on the way to {path}", "mount elsewhere")
    if why := overlay_check(folder.parent)(Path(image.root)):
        what = f"the image at {image.root} cannot be written over here: {why}"
        raise PolicyNotEnforceable("rootfs", what, "set XDG_CACHE_HOME and XDG_STATE_HOME to a local disk", ("docker",))
    files = {} if os.path.lexists(f"{image.root}/etc/hosts") else {"etc/hosts": etc_files()["hosts"]}
    wanted = {"etc/resolv.conf": etc_files()["resolv.conf"]} if networked else {}
    for name, text in (wanted | (_SETTINGS if image.uid == 0 else {})).items():
        above = _above(image.root, name.rpartition("/")[0])
        if all(found.is_dir() and not found.is_symlink() for found in above):
            files[name] = text
    for name in ("upper", "work", *(f"upper/{parent}" for file in files for parent in _parents(file))):
        (folder / name).mkdir(mode=0o755, parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / "upper" / file).write_text(text)
    if uid is not None:
        for where, folders, names in os.walk(folder):
            for name in (*folders, *names):
                os.chown(os.path.join(where, name), uid, uid, follow_symlinks=False)
    way = list(_above(image.root, workdir))
    makes = not any(one.is_symlink() for one in way) and not way[-1].exists() and workdir not in paths
    return Writable(str(folder), image.uid, image.gid, workdir, makes)


def _parents(file: str) -> list[str]:
    return [str(one) for one in reversed(PurePosixPath(file).parents) if one.name]


def _above(root: str, path: str) -> Iterator[Path]:
    """Each folder on the way to a path of the image, and that itself."""
    for part in _parents(f"{path.lstrip('/')}/x"):
        yield Path(root, part)
