"""A folder as data, to compare with another."""

import hashlib
import os
import stat

Picture = dict[str, list[str]]
"""Kind, permission bits, and content or target of each path; the root itself is left out."""


def picture(root: str) -> Picture:
    out: Picture = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            out[os.path.relpath(path, root)] = _entry(path)
    return out


def _entry(path: str) -> list[str]:
    found = os.lstat(path)
    mode = oct(stat.S_IMODE(found.st_mode))
    if stat.S_ISLNK(found.st_mode):
        return ["symlink", "", os.readlink(path)]
    if stat.S_ISDIR(found.st_mode):
        return ["directory", mode, ""]
    if not stat.S_ISREG(found.st_mode):
        return ["special", mode, str(found.st_rdev)]
    if found.st_size > 1 << 24:
        return ["file", mode, f"{found.st_size} bytes"]
    with open(path, "rb") as source:
        return ["file", mode, hashlib.sha256(source.read()).hexdigest()]
