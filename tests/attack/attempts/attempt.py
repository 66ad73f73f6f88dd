"""An attempt: what is tried in a sandbox, and what shows that it got through.

`script` is bash; its working directory is the given folder. It prints FIRED when it got through, unless

- `mark` names a file that the host finds in its HOST_DIR afterwards (`FOLDER:x`: in the given folder, `FOLDER:!x`: gone
  from it; `OUTPUT:n`: more than n bytes of output reached the host), where only the host can tell;
- or `later` is what somebody on the host does afterwards in the given folder, after the bot's unsuspicious changes were
  applied; that then prints FIRED or leaves the mark. `before` is run there by the host in advance.

`unmade`: a sandbox keeps it from being made at all, so that a review has nothing to say; whatever else is made for
`later`, it must flag or refuse. `ends`: holding it may mean that the sandbox is ended. `promise`: words of the
sandbox's guarantees; one that does not say them does not hold it (an ordinary user without control groups).

Names a script may use: what the doctor's `Bait` gives (SECRET, HOST_PID, HOST_COMM, VARIABLE, PORT, HOST_HOME, PROBE,
FIRST), and of the scene: HOST_DIR (a folder of the host all may write to), SOCKET (a listening unix socket in it),
ABSTRACT (an abstract one), FOLDER (the given folder as the host names it), VICTIM (a process of the host), SHM (a
System V segment's key), SHM_FILE (a file in /dev/shm), UDP (a UDP port), HOST_NAME, PYTHON (for `later`), PAUSE
(seconds; 0 where nobody watches).
"""

from dataclasses import dataclass

_C = """export SHM VICTIM; python3 - <<'PY' && echo FIRED
import ctypes, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
victim = int(os.environ["VICTIM"])
def call(*args):
    result = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if result < 0: sys.exit(1)
    return result
"""


@dataclass(frozen=True)
class Attempt:
    name: str
    script: str
    mark: str | None = None
    before: str = ""
    later: str = ""
    ends: bool = False
    unmade: bool = False
    promise: str = ""


def c(name: str, body: str) -> Attempt:
    """In Python, with `call(number, ...)` of x86_64; getting to the end is getting through."""
    return Attempt(name, f"{_C}{body}\nPY")


def opens(name: str, path: str, how: str = "<") -> Attempt:
    """A file of the kernel or the machine can be opened; nothing is written to it."""
    return Attempt(name, f"( exec 3{how}{path} ) && echo FIRED")


def lists(name: str, path: str) -> Attempt:
    """A folder of the host has something in it."""
    return Attempt(name, f'[ -n "$(ls -A {path} 2>/dev/null)" ] && echo FIRED')
