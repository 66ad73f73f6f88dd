"""The system call filter of every sandbox, assembled here: no library is needed, and the program can be read back.

An allow-list (syscalls.py): what it does not name answers ENOSYS. Some calls are allowed for some arguments only: no
namespaces, no foreign or raw sockets and no filters on them, no devices, no set-id files, no typing into a terminal. A
call of another architecture ends the process.

Formats: linux/filter.h and linux/seccomp.h; see seccomp(2).
"""

import errno
import functools
import platform
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from stockade_sandbox.backends.syscalls import ALLOWED, CHECKED, MISSING, REFUSED
from stockade_sandbox.errors import PolicyNotEnforceable

LD_WORD, JMP, JMP_EQUAL, JMP_GREATER_EQUAL, ALU_AND, RET = 0x20, 0x05, 0x15, 0x35, 0x54, 0x06
ALLOW, KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NR_OFFSET, _ARCH_OFFSET, _ARGS_OFFSET = 0, 4, 16
_X32_BIT = 0x40000000
LOW = 0xFFFFFFFF

Instruction = tuple[int, int, int, int]
"""code, jump if true, jump if false, operand."""


class Architecture(NamedTuple):
    """`audit` is the AUDIT_ARCH_ constant; `column` the place of its numbers in the tables."""

    name: str
    audit: int
    column: int
    has_x32: bool = False


ARCHITECTURES = {
    "x86_64": Architecture("x86_64", 0xC000003E, 0, has_x32=True),
    "aarch64": Architecture("aarch64", 0xC00000B7, 1),
}


class Check(NamedTuple):
    """Whether `argument & mask` is among the values, or is not. Of its low half: the kernel ignores the rest of it."""

    argument: int
    values: tuple[int, ...]
    mask: int = LOW
    among: bool = True


class Condition(NamedTuple):
    """The call is allowed when all checks of one of the alternatives hold; otherwise it fails with `code`."""

    alternatives: tuple[tuple[Check, ...], ...]
    code: int = errno.EPERM


def _no_bit(argument: int, mask: int) -> Check:
    return Check(argument, (0,), mask)


FIRST_PROCESS = 1
_NAMESPACES = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_NEW_TIME = 0x80  # only unshare: in clone these bits are the exit signal
_TERMINAL = (0x5412, 0x541C, 0x541D, 0x5423)  # TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD
_SET_ID, _NEGATIVE = 0o6000, 0x80000000
_CREATES = 0o100 | 0x400000  # O_CREAT, __O_TMPFILE: without them `mode` is whatever was in the register
_NO_DEVICE = (0, 0o100000, 0o010000, 0o140000)  # a file, a file, a pipe, a socket
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _PACKETS, _KIND = 1, 2, 5, 0xF
_TCP, _UDP = 6, 17
_SOL_SOCKET = 1
_SOCKET_FILTERS = (26, 44, 50, 51, 52)  # SO_{ATTACH_FILTER,LOCK_FILTER,ATTACH_BPF,ATTACH_REUSEPORT_{C,E}BPF}
_PLAIN, _NOT_RANDOM, _ASK = 0, 0x0040000, 0xFFFFFFFF  # PER_LINUX, ADDR_NO_RANDOMIZE
_PUNCH_HOLE = 2  # all else takes room that no page was written for, faster than limits/disk.py can look
_INTERNET = Check(0, (_AF_INET, _AF_INET6))
SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open")
"""None of them to the agent: Linux keeps process one of a namespace from those inside, gVisor does not."""
SHARES = ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr")
"""A limit of CPU seconds ends the agent, and a share of nothing stops it: Linux asks here only whose process it is."""
_NOT_FIRST = Check(1, (FIRST_PROCESS,), among=False)
_OF_A_PROCESS = Check(0, (0,))  # PRIO_PROCESS: those of a user or a group are the agent's too
_OF_A_PROCESS_IO = Check(0, (1,))  # IOPRIO_WHO_PROCESS

CONDITIONS = {
    "clone": Condition(((_no_bit(0, _NAMESPACES),),)),
    "unshare": Condition(((_no_bit(0, _NAMESPACES | _NEW_TIME),),)),
    "ioctl": Condition(((Check(1, _TERMINAL, among=False),),)),
    "socket": Condition(
        (
            (Check(0, (_AF_UNIX,)), Check(1, (_STREAM, _DATAGRAM, _PACKETS), _KIND)),
            (_INTERNET, Check(1, (_STREAM,), _KIND), Check(2, (0, _TCP))),
            (_INTERNET, Check(1, (_DATAGRAM,), _KIND), Check(2, (0, _UDP))),
            (Check(0, (_AF_NETLINK,)), Check(2, (0,))),
        ),
        errno.EAFNOSUPPORT,
    ),
    "socketpair": Condition(((Check(0, (_AF_UNIX,)),),), errno.EAFNOSUPPORT),
    "setsockopt": Condition(((Check(1, (_SOL_SOCKET,), among=False),), (Check(2, _SOCKET_FILTERS, among=False),))),
    "personality": Condition(((Check(0, (_PLAIN, _NOT_RANDOM, _ASK)),),)),
    "chmod": Condition(((_no_bit(1, _SET_ID),),)),
    "fchmod": Condition(((_no_bit(1, _SET_ID),),)),
    "fchmodat": Condition(((_no_bit(2, _SET_ID),),)),
    "creat": Condition(((_no_bit(1, _SET_ID),),)),
    "mknod": Condition(((Check(1, _NO_DEVICE, 0o170000 | _SET_ID),),)),
    "mknodat": Condition(((Check(2, _NO_DEVICE, 0o170000 | _SET_ID),),)),
    "open": Condition(((_no_bit(1, _CREATES),), (_no_bit(2, _SET_ID),))),
    "openat": Condition(((_no_bit(2, _CREATES),), (_no_bit(3, _SET_ID),))),
    "setpriority": Condition(((_OF_A_PROCESS, _NOT_FIRST, _no_bit(2, _NEGATIVE)),), errno.EACCES),
    "ioprio_set": Condition(((_OF_A_PROCESS_IO, _NOT_FIRST),)),
    "fallocate": Condition(((Check(1, (_PUNCH_HOLE,), _PUNCH_HOLE),),), errno.EOPNOTSUPP),
    **{name: Condition(((Check(0, (FIRST_PROCESS,), among=False),),)) for name in (*SIGNALS, *SHARES)},
}

FAKED = frozenset({
    "chown", "fchown", "lchown", "fchownat", "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid",
    "setgroups",
})  # fmt: skip
"""Said to be done, and not done, where tools are installed: package managers want to be root, and are so in name."""
_FAKED_SET_ID = ("chmod", "fchmod", "fchmodat")


def _answer(code: int) -> Instruction:
    return (RET, 0, 0, _ERRNO | code)


_PERMIT: Instruction = (RET, 0, 0, ALLOW)
_END_OF_ALTERNATIVE: Instruction = (JMP, 0, 0, LOW)


def _check(check: Check) -> Iterator[Instruction]:
    """Goes on where it holds, else to the end of the alternative."""
    yield (LD_WORD, 0, 0, _ARGS_OFFSET + 8 * check.argument)
    if check.mask != LOW:
        yield (ALU_AND, 0, 0, check.mask)
    if check.among:
        for left, value in zip(range(len(check.values), 0, -1), check.values, strict=True):
            yield (JMP_EQUAL, left, 0, value)
        yield _END_OF_ALTERNATIVE
        return
    for value in check.values:
        yield from ((JMP_EQUAL, 0, 1, value), _END_OF_ALTERNATIVE)


def _condition(condition: Condition) -> list[Instruction]:
    program: list[Instruction] = []
    for checks in condition.alternatives:
        body = [instruction for check in checks for instruction in _check(check)]
        for at, instruction in enumerate(body):
            to_the_end = (JMP, 0, 0, len(body) - at)
            program.append(to_the_end if instruction == _END_OF_ALTERNATIVE else instruction)
        program.append(_PERMIT)
    return [*program, _answer(condition.code)]


def _bodies(*, installing: bool) -> Iterator[tuple[str, list[Instruction]]]:
    """What is done with each call that is named."""
    for name in (name for calls in ALLOWED.values() for name in calls):
        yield name, [_answer(0) if installing and name in FAKED else _PERMIT]
    for name, condition in CONDITIONS.items():
        faked = installing and name in _FAKED_SET_ID
        yield name, _condition(Condition(condition.alternatives, 0) if faked else condition)
    for name in (name for calls in REFUSED.values() for name in calls):
        yield name, [_answer(errno.EPERM)]


def numbers() -> dict[str, tuple[int | None, int | None]]:
    """Of every call in a table, on each architecture."""
    tables = (*ALLOWED.values(), CHECKED, *REFUSED.values(), MISSING)
    return {name: found for table in tables for name, found in table.items()}


def _search(ranges: Sequence[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """A binary search: each range begins at its number and ends before the next one's."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    below, above = _search(ranges[:middle]), _search(ranges[middle:])
    return [(JMP_GREATER_EQUAL, 0, 1, ranges[middle][0]), (JMP, 0, 0, len(below)), *below, *above]


def _ranges(bodies: Iterable[tuple[int, list[Instruction]]]) -> list[tuple[int, list[Instruction]]]:
    """With the gaps between the numbers, which answer ENOSYS; neighbours with one body are one."""
    unknown = [_answer(errno.ENOSYS)]
    found: list[tuple[int, list[Instruction]]] = [(0, unknown)]
    for number, body in sorted(bodies):
        for start, following in ((number, body), (number + 1, unknown)):
            if found[-1][0] == start:
                found.pop()
            if not found or found[-1][1] != following:
                found.append((start, following))
    return found


def assemble(architecture: Architecture, *, installing: bool = False) -> list[Instruction]:
    """The program: its architecture, then the number, searched for in a tree of comparisons."""
    known = numbers()
    bodies = [
        (number, body)
        for name, body in _bodies(installing=installing)
        if (number := known[name][architecture.column]) is not None
    ]
    program: list[Instruction] = [
        (LD_WORD, 0, 0, _ARCH_OFFSET),
        (JMP_EQUAL, 1, 0, architecture.audit),
        (RET, 0, 0, KILL_PROCESS),
        (LD_WORD, 0, 0, _NR_OFFSET),
    ]
    if architecture.has_x32:
        program += [(JMP_GREATER_EQUAL, 0, 1, _X32_BIT), (RET, 0, 0, KILL_PROCESS)]
    return [*program, *_search(_ranges(bodies))]


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
