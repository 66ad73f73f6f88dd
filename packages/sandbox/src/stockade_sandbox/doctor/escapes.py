"""Escapes that `stockade doctor` tries from inside a live sandbox. The attack tests prove that each can succeed.

A script prints FIRED when it got through. It needs nothing inside but bash and the probe: the launcher, put at
`$PROBE`, makes the system calls of its operation `call`. Other names it uses are in `Bait`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from stockade_sandbox.backends.seccomp import Architecture, numbers

FIRED, TRIED = "FIRED", "TRIED"


@dataclass(frozen=True)
class Escape:
    """`name` for people, `script` for bash."""

    name: str
    script: str


@dataclass(frozen=True)
class Bait:
    """What the host lays out: a secret file, our pid and name, a variable of ours, a listening port, our home.

    `first` is the process whose memory is tried: the sandbox's first.
    """

    secret: str
    pid: int
    comm: str
    variable: str
    port: int
    home: str
    probe: str
    first: int = 1

    def variables(self) -> Mapping[str, str]:
        return {
            "SECRET": self.secret, "HOST_PID": str(self.pid), "HOST_COMM": self.comm, "VARIABLE": self.variable,
            "PORT": str(self.port), "HOST_HOME": self.home, "PROBE": self.probe,
            "FIRST": str(self.first),
        }  # fmt: skip


def _call(number: int | None, *arguments: int) -> str:
    """FIRED unless the filter answered: any other error is the kernel's own, so the call had reached it."""
    numbers = " ".join(str(value) for value in (*arguments, 0, 0, 0)[:3])
    refusals = "Operation not permitted|Function not implemented|Address family not supported|Permission denied"
    return (
        f'said=$("$PROBE" call {number} {numbers} 2>&1); status=$?; [ $status -ge 126 ] && exit 1\n'
        f'printf %s "$said" | grep -qE "{refusals}" || echo {FIRED}'
    )


_FILES = (
    Escape("read a file of the host", f'[ -s "$SECRET" ] && cat "$SECRET" >/dev/null && echo {FIRED}'),
    Escape("read /etc/shadow", f"grep -qsE '^[^:]+:[^:]*:[0-9]' /etc/shadow && echo {FIRED}"),
    Escape("read your home", f'[ -n "$(ls -A "$HOST_HOME" 2>/dev/null)" ] && echo {FIRED}'),
    Escape(
        "write to /usr", f"( : > /usr/.stockade-canary ) 2>/dev/null && rm -f /usr/.stockade-canary && echo {FIRED}"
    ),
    Escape(
        "make a set-id program",
        f"cp /bin/true /tmp/.canary && chmod u+s /tmp/.canary 2>/dev/null && echo {FIRED}; rm -f /tmp/.canary",
    ),
    Escape("change a kernel setting", f"( exec 3>>/proc/sys/kernel/core_pattern ) 2>/dev/null && echo {FIRED}"),
)

_PROCESSES = (
    Escape("see the host's processes", f'[ "$(cat /proc/$HOST_PID/comm 2>/dev/null)" = "$HOST_COMM" ] && echo {FIRED}'),
    Escape("read our environment", f'cat /proc/[0-9]*/environ 2>/dev/null | grep -qaF -- "$VARIABLE" && echo {FIRED}'),
    Escape("open the memory of process 1", f"( exec 3<>/proc/$FIRST/mem ) 2>/dev/null && echo {FIRED}"),
    Escape("hold capabilities", f"grep -q '^CapBnd:.*[1-9a-f]' /proc/self/status && echo {FIRED}"),
    Escape("reach the host's loopback", f"( exec 3<>/dev/tcp/127.0.0.1/$PORT ) 2>/dev/null && echo {FIRED}"),
)


def escapes(architecture: Architecture) -> tuple[Escape, ...]:
    """All of them, with the system call numbers of this architecture."""
    known = {name: found[architecture.column] for name, found in numbers().items()}
    calls = (
        Escape("make a user namespace", _call(known["unshare"], 0x10000000)),
        Escape("mount", _call(known["mount"])),
        Escape("trace a process", _call(known["ptrace"])),
        Escape("use io_uring", _call(known["io_uring_setup"], 1)),
        Escape("open a vsock to the hypervisor", _call(known["socket"], 40, 1)),
        Escape("open a raw socket", _call(known["socket"], 2, 3, 1)),
        Escape("read kernel keys", _call(known["keyctl"])),
        Escape("load BPF", _call(known["bpf"])),
        Escape("type into a terminal", _call(known["ioctl"], 0, 0x5412)),
    )
    return (*_FILES, *_PROCESSES, *calls)
