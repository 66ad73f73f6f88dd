"""The filter, run by an interpreter of its own, against the kernel's headers and live."""

import errno
import platform
import re
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from stockade.core.errors import PolicyNotEnforceable
from stockade_sandbox.agent.binary import sealed_memfd
from stockade_sandbox.backends import seccomp
from stockade_sandbox.backends.seccomp import ALLOW, ARCHITECTURES, KILL_PROCESS, Architecture, Instruction, assemble
from stockade_sandbox.backends.syscalls import ALLOWED, CHECKED, MISSING, REFUSED, Table

X86, ARM = ARCHITECTURES["x86_64"], ARCHITECTURES["aarch64"]
EPERM, ENOSYS = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS


def interpret(program: Sequence[Instruction], nr: int, arch: int, args: Sequence[int] = ()) -> int:
    """Classic BPF over a struct seccomp_data, as far as the filter uses it; the value it returns."""
    data = struct.pack("=IIQ6Q", nr, arch, 0, *args, *[0] * (6 - len(args)))
    accumulator, at = 0, 0
    while True:
        code, yes, no, operand = program[at]
        at += 1
        if code == seccomp.LD_WORD:
            (accumulator,) = struct.unpack_from("=I", data, operand)
        elif code == seccomp.ALU_AND:
            accumulator &= operand
        elif code == seccomp.RET:
            return operand
        elif code == seccomp.JMP:
            at += operand
        else:
            test = {
                seccomp.JMP_EQUAL: accumulator == operand,
                seccomp.JMP_GREATER_EQUAL: accumulator >= operand,
            }[code]
            at += yes if test else no


def verdict(architecture: Architecture, name: str, *args: int) -> int:
    number = seccomp.numbers()[name][architecture.column]
    assert number is not None
    return interpret(assemble(architecture), number, architecture.audit, args)


def names(tables: Mapping[str, Table]) -> set[str]:
    return {name for calls in tables.values() for name in calls}


@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=lambda found: found.name)
def test_every_number_there_is(architecture: Architecture) -> None:
    """By the kernel's own names: what is allowed, what is refused, and nothing for all others."""
    program, numbers = assemble(architecture), seccomp.numbers()
    named = {
        found[architecture.column]: name for name, found in numbers.items() if found[architecture.column] is not None
    }
    assert len(named) == sum(found[architecture.column] is not None for found in numbers.values())
    for number in [*range(1000), 0x3FFFFFFF]:
        name = named.get(number, "")
        if name in seccomp.CONDITIONS:
            continue
        expected = ALLOW if name in names(ALLOWED) else EPERM if name in names(REFUSED) else ENOSYS
        assert interpret(program, number, architecture.audit, (5, 5, 5)) == expected, (number, name)


def test_each_call_is_in_one_table_and_each_condition_is_of_a_call() -> None:
    tables = [*ALLOWED.values(), CHECKED, *REFUSED.values(), MISSING]
    assert len(seccomp.numbers()) == sum(map(len, tables))
    assert set(CHECKED) == set(seccomp.CONDITIONS)
    assert names(ALLOWED) >= seccomp.FAKED


@pytest.mark.parametrize("installing", [False, True])
@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=lambda found: found.name)
def test_program_is_well_formed(architecture: Architecture, installing: bool) -> None:
    program = assemble(architecture, installing=installing)
    assert len(program) < 4096
    for at, (code, yes, no, operand) in enumerate(program):
        assert 0 <= yes < 256
        assert 0 <= no < 256
        furthest = operand if code == seccomp.JMP else max(yes, no)
        assert code == seccomp.RET or at + 1 + furthest < len(program)
    assert program[-1][0] == seccomp.RET


def test_installing_fakes_what_it_may_not_do() -> None:
    program, numbers = assemble(X86, installing=True), seccomp.numbers()
    for name in seccomp.FAKED:
        assert interpret(program, numbers[name][0] or 0, X86.audit) == 0x50000
    assert interpret(program, numbers["chmod"][0] or 0, X86.audit, (0, 0o4755)) == 0x50000
    assert interpret(program, numbers["chmod"][0] or 0, X86.audit, (0, 0o755)) == ALLOW
    assert interpret(program, numbers["mount"][0] or 0, X86.audit) == EPERM


NEWER = {
    "statmount", "listmount", "open_tree_attr", "fchmodat2", "cachestat", "map_shadow_stack", "futex_wake",
    "futex_wait", "futex_requeue", "mseal", "setxattrat", "getxattrat", "listxattrat", "removexattrat",
}  # fmt: skip
"""Than the headers of Debian 12."""
LAST_OF_DEBIAN_12 = 450
"""What the table does not name is refused, and what comes later it need not."""


def test_numbers_agree_with_the_kernel_headers() -> None:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+)\s+(\d+)", header)}
    table = seccomp.numbers()
    assert {name for name in table if name not in known} <= NEWER
    assert {name: numbers[0] for name, numbers in table.items() if name in known} == {
        name: known[name] for name in table if name in known
    }
    later = {name for name, number in known.items() if number > LAST_OF_DEBIAN_12 or name in ("uprobe", "uretprobe")}
    assert set(known) - set(table) - later == {
        "afs_syscall", "epoll_ctl_old", "epoll_wait_old", "get_kernel_syms", "getpmsg", "process_mrelease", "putpmsg",
        "query_module", "security", "tuxcall", "vserver",
    }  # fmt: skip


def test_numbers_of_aarch64_agree_with_the_generic_table() -> None:
    header = Path("/usr/include/asm-generic/unistd.h").read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header)}
    known["newfstatat"] = known["fstatat"]
    for name, (_, number) in seccomp.numbers().items():
        if name not in NEWER:
            assert number == known.get(name), name


def test_other_architectures_and_x32_end_the_process() -> None:
    assert interpret(assemble(X86), 1, 0x40000003) == KILL_PROCESS
    assert interpret(assemble(X86), 0x40000000 | 1, X86.audit) == KILL_PROCESS
    assert interpret(assemble(ARM), 1, X86.audit) == KILL_PROCESS


def test_ordinary_calls_pass() -> None:
    for number in (0, 1, 3, 9, 59, 60, 231, 257, 319, 334, 436):
        assert interpret(assemble(X86), number, X86.audit) == ALLOW


@pytest.mark.parametrize("flag", [0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000])
def test_new_namespaces(flag: int) -> None:
    assert verdict(X86, "clone", flag | 17) == EPERM
    assert verdict(X86, "unshare", flag) == EPERM
    assert verdict(ARM, "clone", flag) == EPERM


def test_threads_forks_and_harmless_unshare_pass() -> None:
    assert verdict(X86, "clone", 0x3D0F00) == ALLOW
    assert verdict(X86, "clone", 17) == ALLOW
    assert verdict(X86, "unshare", 0x400) == ALLOW
    assert verdict(X86, "unshare", 0x80) == EPERM


@pytest.mark.parametrize(
    ("family", "kind", "protocol", "allowed"),
    [
        (1, 1, 0, True), (2, 1, 6, True), (2, 0x80802, 17, True), (10, 1, 0, True), (16, 3, 0, True), (16, 2, 0, True),
        (16, 3, 9, False), (2, 3, 1, False), (2, 0x80003, 1, False), (10, 3, 58, False), (2, 10, 0, False),
        (17, 3, 0, False), (38, 5, 0, False), (40, 1, 0, False), (44, 3, 0, False), (0, 1, 0, False),
        (2, 1, 132, False), (2, 1, 262, False), (2, 2, 136, False), (10, 5, 132, False), (2, 2, 1, False),
        (1, 5, 0, True), (1, 3, 0, False), (10, 2, 0, True),
    ],
)  # fmt: skip
def test_sockets(family: int, kind: int, protocol: int, allowed: bool) -> None:
    assert (verdict(X86, "socket", family, kind, protocol) == ALLOW) is allowed


def test_terminal_injection_is_seen_whatever_the_high_half_says() -> None:
    for high in (0, 1 << 32, 0xFFFFFFFF << 32):
        assert verdict(X86, "ioctl", 0, high | 0x5412) == EPERM
        assert verdict(X86, "ioctl", 0, high | 0x541C) == EPERM
        assert verdict(X86, "ioctl", 0, high | 0x5423) == EPERM
    assert verdict(X86, "ioctl", 0, 0x5413) == ALLOW


def test_no_filter_on_a_socket_and_no_other_personality() -> None:
    for option in (26, 44, 50, 51, 52):
        assert verdict(X86, "setsockopt", 3, 1, option) == EPERM
        assert verdict(ARM, "setsockopt", 3, 6, option) == ALLOW
    assert verdict(X86, "setsockopt", 3, 1, 2) == ALLOW
    for persona, expected in ((0, ALLOW), (0xFFFFFFFF, ALLOW), (0x40000, ALLOW), (8, EPERM), (0x400000, EPERM)):
        assert verdict(X86, "personality", persona) == expected
    assert verdict(X86, "socketpair", 2, 1) == 0x50000 | errno.EAFNOSUPPORT


def test_set_id_modes() -> None:
    for mode, expected in ((0o755, ALLOW), (0o1777, ALLOW), (0o4755, EPERM), (0o2755, EPERM)):
        assert verdict(X86, "chmod", 0, mode) == expected
        assert verdict(X86, "fchmodat", 0, 0, mode) == expected
        assert verdict(X86, "creat", 0, mode) == expected
        assert verdict(X86, "openat", 0, 0, 0o101, mode) == expected
        assert verdict(X86, "openat", 0, 0, 0, mode) == ALLOW  # no O_CREAT: `mode` is not an argument
        assert verdict(X86, "open", 0, 0x410001, mode) == expected


def test_devices_and_fifos() -> None:
    assert verdict(X86, "mknod", 0, 0o020666) == EPERM
    assert verdict(X86, "mknodat", 0, 0, 0o060666) == EPERM
    assert verdict(X86, "mknodat", 0, 0, 0o010666) == ALLOW
    assert verdict(X86, "mknod", 0, 0o100644) == ALLOW


@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=lambda found: found.name)
def test_process_one_gets_no_signal(architecture: Architecture) -> None:
    for name in seccomp.SIGNALS:
        assert verdict(architecture, name, 1, 9) == EPERM
        assert verdict(architecture, name, 0xABC_0000_0001, 9) == EPERM
        for pid in (0, 2, 11, -1 % 2**64):
            assert verdict(architecture, name, pid, 9) == ALLOW


@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=lambda found: found.name)
def test_process_one_keeps_its_limits_and_its_share(architecture: Architecture) -> None:
    for name in seccomp.SHARES:
        assert verdict(architecture, name, 1, 0) == EPERM
        assert verdict(architecture, name, 0xABC_0000_0001, 0) == EPERM
        assert verdict(architecture, name, 0, 0) == verdict(architecture, name, 11, 0) == ALLOW
    for name, process in (("setpriority", 0), ("ioprio_set", 1)):
        assert verdict(architecture, name, process, 1, 5) != ALLOW
        assert verdict(architecture, name, process, 0, 5) == verdict(architecture, name, process, 11, 5) == ALLOW
        for others in (1, 2, 3):  # groups and users, which the agent may be of
            assert others == process or verdict(architecture, name, others, 0, 5) != ALLOW


def test_a_better_priority_is_refused() -> None:
    assert verdict(X86, "setpriority", 0, 0, -5 % 2**64) == 0x50000 | errno.EACCES
    assert verdict(X86, "setpriority", 0, 0, 19) == ALLOW


@pytest.mark.parametrize(
    ("mode", "allowed"), [(0, False), (1, False), (3, True), (0x10, False), (0x20, False), (0x40, False)]
)
def test_only_holes_are_allocated(mode: int, allowed: bool) -> None:
    for machine in (X86, ARM):
        found = verdict(machine, "fallocate", 5, mode, 0, 1 << 40)
        assert found == (ALLOW if allowed else 0x50000 | errno.EOPNOTSUPP)


def test_unknown_architecture_is_refused() -> None:
    with pytest.raises(PolicyNotEnforceable, match="riscv64"):
        seccomp.filter_bytes("riscv64")


def test_kernel_takes_the_filter() -> None:
    fd = sealed_memfd("seccomp", seccomp.filter_bytes())
    command = ["bwrap", "--ro-bind", "/", "/", "--seccomp", str(fd), "--", "unshare", "-U", "true"]
    without = [part for part in command if part not in ("--seccomp", str(fd))]
    assert subprocess.run(without, capture_output=True, check=False).returncode == 0
    done = subprocess.run(command, pass_fds=[fd], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Operation not permitted" in done.stderr
    assert platform.machine() in ARCHITECTURES
