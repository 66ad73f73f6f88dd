"""Opening a path of a folder as if that were the root of the file system: no link of it leads out (openat2(2))."""

import ctypes
import errno
import os

_OPENAT2 = 437
"""The number of the call, on every architecture."""
_TRIES = 1000
"""With a `..` in the path, a rename anywhere on the machine meanwhile makes the kernel give up: EAGAIN."""
_RESOLVE_NO_MAGICLINKS, _RESOLVE_IN_ROOT = 0x02, 0x10


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_in_root(root: int, path: str, flags: int) -> int:
    """A descriptor. `root`: of a folder. OSError as of open(2)."""
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
    call = ctypes.CDLL(None, use_errno=True).syscall
    for _ in range(_TRIES):
        fd = int(call(_OPENAT2, root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)))
        if fd >= 0:
            return fd
        if (error := ctypes.get_errno()) != errno.EAGAIN:
            break
    raise OSError(error, os.strerror(error), path)
