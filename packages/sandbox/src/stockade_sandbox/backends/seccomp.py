"""The system call filter of every sandbox, assembled here: no library is needed, and the program can be read back.

Default allow. What is refused was found open in attacks (notes on sandboxes): mounting, namespaces, tracing, keys,
kernel interfaces with a history of holes, devices, set-id files, raw and foreign sockets, typing into a terminal. The
error is EPERM, or ENOSYS where programs fall back to an older call by themselves. A call of another architecture ends
the process.

Formats: linux/filter.h and linux/seccomp.h; see seccomp(2).
"""

import errno
import functools
import platform
import struct
from collections.abc import Mapping
from typing import NamedTuple

from stockade_sandbox.errors import PolicyNotEnforceable

LD_WORD, JMP_EQUAL, JMP_GREATER_EQUAL, JMP_SET, ALU_AND, RET = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
ALLOW, KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NR_OFFSET, _ARCH_OFFSET, _ARGS_OFFSET = 0, 4, 16
_X32_BIT = 0x40000000

Instruction = tuple[int, int, int, int]
"""code, jump if true, jump if false, operand."""


class Architecture(NamedTuple):
    """`audit` is the AUDIT_ARCH_ constant; `column` the place of its numbers in the tables below."""

    name: str
    audit: int
    column: int
    has_x32: bool = False


ARCHITECTURES = {
    "x86_64": Architecture("x86_64", 0xC000003E, 0, has_x32=True),
    "aarch64": Architecture("aarch64", 0xC00000B7, 1),
}

_Table = Mapping[str, tuple[int | None, int | None]]

REFUSED: _Table = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "statmount": (457, 457), "listmount": (458, 458), "open_tree_attr": (467, 467),
    "setns": (308, 268), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272), "process_madvise": (440, 440),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "memfd_secret": (447, 447),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "create_module": (174, None),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "mbind": (237, 235), "set_mempolicy": (238, 237), "get_mempolicy": (239, 236), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "set_mempolicy_home_node": (450, 450), "acct": (163, 89), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "syslog": (103, 116), "iopl": (172, None), "ioperm": (173, None), "vhangup": (153, 58),
    "sethostname": (170, 161), "setdomainname": (171, 162), "lookup_dcookie": (212, 18), "nfsservctl": (180, 42),
    "fanotify_init": (300, 262), "uselib": (134, None), "ustat": (136, None), "sysfs": (139, None),
    "_sysctl": (156, None), "modify_ldt": (154, None),
}  # fmt: skip
"""EPERM whatever the arguments."""

MISSING: _Table = {
    "clone3": (435, 435), "openat2": (437, 437), "fchmodat2": (452, 452), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}  # fmt: skip
"""ENOSYS: their arguments lie in memory, where a filter cannot look, and callers fall back."""

_CHECKED: _Table = {
    "clone": (56, 220), "unshare": (272, 97), "ioctl": (16, 29), "socket": (41, 198), "chmod": (90, None),
    "fchmod": (91, 52), "fchmodat": (268, 53), "creat": (85, None), "mknod": (133, None), "mknodat": (259, 33),
    "open": (2, None), "openat": (257, 56), "setpriority": (141, 140), "kill": (62, 129), "tkill": (200, 130),
    "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434),
}  # fmt: skip

FAKED: _Table = {
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "setuid": (105, 146),
    "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143), "setresuid": (117, 147),
    "setresgid": (119, 149), "setgroups": (116, 159),
}  # fmt: skip
"""Said to be done, and not done, where tools are installed: package managers want to be root, and are so in name."""

SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open")
_NAMESPACES = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_NEW_TIME = 0x80  # only unshare: in clone these bits are the exit signal
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_SET_ID = 0o6000
_NEGATIVE = 0x80000000
FIRST_PROCESS = 1
_CREATES = 0o100 | 0x400000  # O_CREAT, __O_TMPFILE: without them `mode` is whatever was in the register
_S_IFMT, _S_IFCHR, _S_IFBLK = 0o170000, 0o020000, 0o060000
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_SOCK_TYPE, _SOCK_RAW, _SOCK_PACKET = 0xF, 3, 10


def _refuse(code: int = errno.EPERM) -> Instruction:
    return (RET, 0, 0, _ERRNO | code)


def _argument(index: int) -> Instruction:
    """The low half: the kernel too ignores the rest of every argument tested here."""
    return (LD_WORD, 0, 0, _ARGS_OFFSET + 8 * index)


def _if_any_bit(mask: int, then: Instruction) -> list[Instruction]:
    return [(JMP_SET, 0, 1, mask), then]


def _if_equal(value: int, then: Instruction) -> list[Instruction]:
    return [(JMP_EQUAL, 0, 1, value), then]


_PERMIT: Instruction = (RET, 0, 0, ALLOW)


def _no_set_id(mode: int, code: int = errno.EPERM) -> list[Instruction]:
    return [_argument(mode), *_if_any_bit(_SET_ID, _refuse(code))]


def _no_set_id_when_creating(flags: int) -> list[Instruction]:
    return [_argument(flags), (JMP_SET, 1, 0, _CREATES), _PERMIT, *_no_set_id(flags + 1)]


def _no_device(mode: int) -> list[Instruction]:
    kind = [(ALU_AND, 0, 0, _S_IFMT), *_if_equal(_S_IFCHR, _refuse()), *_if_equal(_S_IFBLK, _refuse())]
    return [*_no_set_id(mode), *kind]


def _not_process_one() -> list[Instruction]:
    """The agent. Linux keeps process one of a namespace from the signals of those in it, gVisor does not."""
    return [_argument(0), *_if_equal(FIRST_PROCESS, _refuse())]


def _plain_sockets() -> list[Instruction]:
    netlink = [_argument(2), *_if_equal(0, _PERMIT), _refuse(errno.EPROTONOSUPPORT)]
    kinds = [
        _argument(1),
        (ALU_AND, 0, 0, _SOCK_TYPE),
        *_if_equal(_SOCK_RAW, _refuse()),
        *_if_equal(_SOCK_PACKET, _refuse()),
        _PERMIT,
    ]
    return [
        _argument(0),
        (JMP_EQUAL, 0, len(netlink), _AF_NETLINK),
        *netlink,
        (JMP_EQUAL, 3, 0, _AF_UNIX),
        (JMP_EQUAL, 2, 0, _AF_INET),
        (JMP_EQUAL, 1, 0, _AF_INET6),
        _refuse(errno.EAFNOSUPPORT),
        *kinds,
    ]


def _checks(*, installing: bool) -> dict[str, list[Instruction]]:
    code = 0 if installing else errno.EPERM
    return {
        "clone": [_argument(0), *_if_any_bit(_NAMESPACES, _refuse())],
        "unshare": [_argument(0), *_if_any_bit(_NAMESPACES | _NEW_TIME, _refuse())],
        "ioctl": [_argument(1), *_if_equal(_TIOCSTI, _refuse()), *_if_equal(_TIOCLINUX, _refuse())],
        "socket": _plain_sockets(),
        "chmod": _no_set_id(1, code),
        "fchmod": _no_set_id(1, code),
        "fchmodat": _no_set_id(2, code),
        "creat": _no_set_id(1),
        "mknod": _no_device(1),
        "mknodat": _no_device(2),
        "open": _no_set_id_when_creating(1),
        "openat": _no_set_id_when_creating(2),
        "setpriority": [_argument(2), *_if_any_bit(_NEGATIVE, _refuse(errno.EACCES))],
        **{name: _not_process_one() for name in SIGNALS},
    }


def assemble(architecture: Architecture, *, installing: bool = False) -> list[Instruction]:
    """The program. Each refused call is a comparison and a return, so that no jump is long."""
    program: list[Instruction] = [
        (LD_WORD, 0, 0, _ARCH_OFFSET),
        (JMP_EQUAL, 1, 0, architecture.audit),
        (RET, 0, 0, KILL_PROCESS),
        (LD_WORD, 0, 0, _NR_OFFSET),
    ]
    if architecture.has_x32:
        program += [(JMP_GREATER_EQUAL, 0, 1, _X32_BIT), (RET, 0, 0, KILL_PROCESS)]
    faked = FAKED if installing else {}
    for table, answer in ((REFUSED, _refuse()), (MISSING, _refuse(errno.ENOSYS)), (faked, _refuse(0))):
        for numbers in table.values():
            number = numbers[architecture.column]
            if number is not None:
                program += _if_equal(number, answer)
    for name, body in _checks(installing=installing).items():
        number = _CHECKED[name][architecture.column]
        if number is not None:
            program += [(JMP_EQUAL, 0, len(body) + 1, number), *body, _PERMIT]
    return [*program, _PERMIT]


def encode(program: list[Instruction]) -> bytes:
    """As `struct sock_filter`s, what `bwrap --seccomp` reads."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


@functools.cache
def filter_bytes(machine: str | None = None, *, installing: bool = False) -> bytes:
    """The filter for `machine` (default: this one). PolicyNotEnforceable for an architecture without a table.

    `installing`: the one under which tools are installed, with FAKED; it permits no more than the other.
    """
    name = machine or platform.machine()
    found = ARCHITECTURES.get(name)
    if found is None:
        raise PolicyNotEnforceable(
            "sandbox",
            f"no system call filter for the architecture {name}",
            f"bubblewrap sandboxes are made for {' and '.join(ARCHITECTURES)}",
            ("docker", "podman"),
        )
    return encode(assemble(found, installing=installing))
