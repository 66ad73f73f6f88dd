"""The filter in Docker's words says the same as the assembled one: both are run on the same calls."""

import itertools
from typing import Any

import pytest

from stockade.core.errors import PolicyNotEnforceable
from stockade_sandbox.backends.seccomp import MISSING, REFUSED
from stockade_sandbox.backends.seccomp_json import profile

CLONE_NEWUSER, AF_VSOCK, AF_NETLINK = 0x10000000, 40, 16


def answer(name: str, *arguments: int) -> int:
    """errno of a call under the profile, 0 when it is allowed; as libseccomp evaluates: any rule that matches."""
    values = [*arguments, *[0] * 6]
    for rule in profile("x86_64")["syscalls"]:
        if name in rule["names"] and all(_matches(test, values[test["index"]]) for test in rule["args"]):
            return int(rule["errnoRet"])
    return 0


def _matches(test: dict[str, Any], value: int) -> bool:
    wanted = test["value"]
    match test["op"]:
        case "SCMP_CMP_EQ":
            return bool(value == wanted)
        case "SCMP_CMP_NE":
            return bool(value != wanted)
        case "SCMP_CMP_GT":
            return bool(value > wanted)
        case "SCMP_CMP_MASKED_EQ":
            return bool(value & wanted == test["valueTwo"])
    raise AssertionError(test["op"])


def test_the_tables_are_the_same() -> None:
    assert min(len(REFUSED), len(MISSING)) > 0
    assert all(answer(name) == 1 for name in REFUSED)
    assert all(answer(name) == 38 for name in MISSING)


@pytest.mark.parametrize(
    ("name", "arguments", "errno"),
    [
        ("clone", (0x11,), 0),
        ("clone", (CLONE_NEWUSER | 0x11,), 1),
        ("clone", (0x20000,), 1),
        ("unshare", (0x40000000,), 1),
        ("unshare", (0x80,), 1),
        ("unshare", (0x400,), 0),
        ("ioctl", (0, 0x5412), 1),
        ("ioctl", (0, 0x1_0000_5412), 1),
        ("ioctl", (0, 0x5413), 0),
        ("chmod", (0, 0o4755), 1),
        ("fchmodat", (0, 0, 0o2755), 1),
        ("fchmodat", (0, 0, 0o1777), 0),
        ("openat", (0, 0, 0o101, 0o4755), 1),
        ("openat", (0, 0, 0, 0o4755), 0),
        ("openat", (0, 0, 0o101, 0o755), 0),
        ("open", (0, 0x400000, 0o2000), 1),
        ("mknod", (0, 0o020666), 1),
        ("mknodat", (0, 0, 0o060666), 1),
        ("mknodat", (0, 0, 0o010666), 0),
        ("socket", (1, 1, 0), 0),
        ("socket", (2, 0x80801, 0), 0),
        ("socket", (2, 3, 1), 1),
        ("socket", (10, 10, 0), 1),
        ("socket", (AF_NETLINK, 3, 0), 0),
        ("socket", (AF_NETLINK, 3, 9), 93),
        ("socket", (AF_VSOCK, 1, 0), 97),
        ("socket", (0x1_0000_0000 | AF_VSOCK, 1, 0), 97),
        ("socket", (0, 1, 0), 97),
        ("kill", (1, 9), 1),
        ("kill", (0x1_0000_0001, 9), 1),
        ("kill", (2**64 - 1, 9), 0),
        ("pidfd_open", (7, 0), 0),
        ("setpriority", (0, 0, 2**64 - 5), 13),
        ("setpriority", (0, 0, 5), 0),
    ],
)
def test_arguments_decide(name: str, arguments: tuple[int, ...], errno: int) -> None:
    assert answer(name, *arguments) == errno


def test_every_family_but_four_is_refused() -> None:
    allowed = {family for family in range(64) if answer("socket", family, 1, 0) == 0}
    assert allowed == {1, 2, 10, AF_NETLINK}


def test_one_argument_is_compared_once_a_rule() -> None:
    """libseccomp takes no more."""
    for rule in profile("x86_64")["syscalls"]:
        indexes = [test["index"] for test in rule["args"]]
        assert len(indexes) == len(set(indexes))


def test_only_the_machines_own_architecture() -> None:
    assert [profile(name)["architectures"] for name in ("x86_64", "aarch64")] == [
        ["SCMP_ARCH_X86_64"], ["SCMP_ARCH_AARCH64"]
    ]  # fmt: skip
    with pytest.raises(PolicyNotEnforceable):
        profile("riscv64")
    assert not list(
        itertools.filterfalse(lambda rule: rule["action"] == "SCMP_ACT_ERRNO", profile("x86_64")["syscalls"])
    )
