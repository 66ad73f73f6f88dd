"""The system call filter of seccomp.py in the form that Docker, Podman and OCI runtimes read.

The same table, other words: rules of libseccomp compare one argument at a time, so that "any of these bits" becomes one
rule a bit, and "no other family" becomes one rule for each family there is and one for all above.

Format: the `seccomp` object of the OCI runtime specification, config-linux.md, with Docker's flat `syscalls`.
"""

import errno
import json
import platform
from collections.abc import Iterator
from typing import Any

from stockade_sandbox.backends.seccomp import ARCHITECTURES, FIRST_PROCESS, MISSING, REFUSED, SIGNALS
from stockade_sandbox.errors import PolicyNotEnforceable

_SCMP_ARCHES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
_LOW = 0xFFFFFFFF
_NAMESPACE_BITS = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
"""CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}."""
_NEW_TIME = 0x80
_TERMINAL_INPUT = (0x5412, 0x541C)
_SET_ID_BITS = (0o4000, 0o2000)
_CREATE_BITS = (0o100, 0x400000)
_DEVICES = (0o020000, 0o060000)
_FILE_TYPE = 0o170000
_NEGATIVE = 0x80000000
_PLAIN_FAMILIES, _NETLINK = (1, 2, 10), 16
_RAW_KINDS = (3, 10)

Rule = dict[str, Any]


def _argument(index: int, value: int, op: str = "SCMP_CMP_EQ") -> Rule:
    return {"index": index, "value": value, "valueTwo": 0, "op": op}


def _masked(index: int, mask: int, value: int) -> Rule:
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


def _refuse(names: list[str], *arguments: Rule, code: int = errno.EPERM) -> Rule:
    return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": code, "args": list(arguments)}


def _sockets() -> Iterator[Rule]:
    known = {*_PLAIN_FAMILIES, _NETLINK}
    for family in range(_NETLINK):
        if family not in known:
            yield _refuse(["socket"], _argument(0, family), code=errno.EAFNOSUPPORT)
    yield _refuse(["socket"], _argument(0, _NETLINK, "SCMP_CMP_GT"), code=errno.EAFNOSUPPORT)
    yield _refuse(["socket"], _argument(0, _NETLINK), _argument(2, 0, "SCMP_CMP_NE"), code=errno.EPROTONOSUPPORT)
    for family in _PLAIN_FAMILIES:
        for kind in _RAW_KINDS:
            yield _refuse(["socket"], _argument(0, family), _masked(1, 0xF, kind))


def _checked() -> Iterator[Rule]:
    for bit in _NAMESPACE_BITS:
        yield _refuse(["clone", "unshare"], _masked(0, bit, bit))
    yield _refuse(["unshare"], _masked(0, _NEW_TIME, _NEW_TIME))
    for request in _TERMINAL_INPUT:
        yield _refuse(["ioctl"], _masked(1, _LOW, request))
    yield from _sockets()
    for bit in _SET_ID_BITS:
        yield _refuse(["chmod", "fchmod", "creat", "mknod"], _masked(1, bit, bit))
        yield _refuse(["fchmodat", "mknodat"], _masked(2, bit, bit))
        for creates in _CREATE_BITS:
            yield _refuse(["open"], _masked(1, creates, creates), _masked(2, bit, bit))
            yield _refuse(["openat"], _masked(2, creates, creates), _masked(3, bit, bit))
    yield _refuse(["setpriority"], _masked(2, _NEGATIVE, _NEGATIVE), code=errno.EACCES)
    yield _refuse(list(SIGNALS), _masked(0, _LOW, FIRST_PROCESS))
    for kind in _DEVICES:
        yield _refuse(["mknod"], _masked(1, _FILE_TYPE, kind))
        yield _refuse(["mknodat"], _masked(2, _FILE_TYPE, kind))


def profile(machine: str | None = None) -> Rule:
    """The filter for `machine` (default: this one). PolicyNotEnforceable for an architecture without a table."""
    name = machine or platform.machine()
    if name not in ARCHITECTURES:
        raise PolicyNotEnforceable(
            "sandbox", f"no system call filter for the architecture {name}", f"known are {', '.join(ARCHITECTURES)}"
        )
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": [_SCMP_ARCHES[name]],
        "syscalls": [
            _refuse(list(REFUSED)),
            _refuse(list(MISSING), code=errno.ENOSYS),
            *_checked(),
        ],
    }


def profile_bytes(machine: str | None = None) -> bytes:
    return json.dumps(profile(machine), indent=1).encode()
