"""Processes: of the host, of the harness, and what one of our own may be."""

# ruff: noqa: E501 - a script stays in one piece

from dataclasses import replace

from tests.attack.attempts.attempt import Attempt, c


def of_shell(name: str, body: str) -> Attempt:
    """As `c`, with the pid of the bot's shell as `shell`."""
    attempt = c(name, f"shell = int(os.environ['SHELL_PID'])\n{body}")
    return replace(attempt, script=f"export SHELL_PID=$$\n{attempt.script}")


PROCESSES = (
    Attempt("seeing a process of the host", "grep -qa stockade-victim /proc/$VICTIM/cmdline && echo FIRED"),
    Attempt("environment of any process", 'cat /proc/[0-9]*/environ | grep -qaF "ATTACK_TOKEN=t0ken" && echo FIRED'),
    Attempt("own environment", 'env | grep -q "ATTACK_TOKEN=t0ken" && echo FIRED'),
    Attempt(
        "signal to a process of the host",
        "grep -qa stockade-victim /proc/$VICTIM/cmdline && kill -0 $VICTIM && echo FIRED",
    ),
    Attempt("descriptors of process 1", "[ -n \"$(ls /proc/$FIRST/fd 2>/dev/null)\" ] && echo FIRED"),
    Attempt("opening a descriptor of process 1", "for f in /proc/$FIRST/fd/*; do ( exec 3< $f ) && echo FIRED && break; done"),
    Attempt("a signal to process 1", "kill -0 $FIRST && echo FIRED"),
    Attempt("memory of process 1", "( exec 3< /proc/$FIRST/mem ) && echo FIRED"),
    Attempt("map of process 1", "[ -n \"$(cat /proc/$FIRST/maps 2>/dev/null)\" ] && echo FIRED"),
    Attempt("descriptors of the shell", '[ -n "$(ls /proc/$$/fd 2>/dev/null)" ] && echo FIRED'),
    Attempt("descriptors of a thread of the shell", '[ -n "$(ls /proc/$$/task/$$/fd 2>/dev/null)" ] && echo FIRED'),
    Attempt("writing to a descriptor of the shell", 'sh -c "echo FIRED > /proc/$$/fd/1"'),
    Attempt("writing to a descriptor of a fork of the shell", 'exec 53>&1; sh -c "echo FIRED > /proc/$BASHPID/fd/53"; true'),
    Attempt("memory of the shell", 'sh -c "exec 3<> /proc/$$/mem" && echo FIRED'),
    Attempt("map of the shell", '[ -n "$(cat /proc/$$/maps 2>/dev/null)" ] && echo FIRED'),
    Attempt("program of the shell", '[ -n "$(head -c 4 /proc/$$/exe | tr -d "\\0")" ] && echo FIRED'),
    Attempt(
        "descriptors of the shell as its own user",
        "as=$(sed -n 's/^Uid:.\\([0-9]*\\).*/\\1/p' /proc/$$/status); "
        "setpriv --reuid $as --regid $as --clear-groups ls /proc/$$/fd | grep -q . && echo FIRED",
    ),
    Attempt("descriptors of the shell by their numbers",
            "for n in 0 1 53 54 55 56; do ( : > /proc/$$/fd/$n ) && echo FIRED && break; done"),
    Attempt("other links of the shell", "readlink /proc/$$/cwd /proc/$$/root /proc/$$/exe | grep -q . && echo FIRED"),
    Attempt("environment of the shell", "cat /proc/$$/environ | grep -q . && echo FIRED"),
    of_shell("a right to look into others", "sets = [line.split() for line in open('/proc/self/status') if "
             "line.startswith('Cap')]\nif not any(int(bits, 16) & 1 << 19 for _, bits in sets): sys.exit(1)"),
    of_shell("tracing the shell", "call(101, 0x4206, shell, 0, 0)"),
    of_shell("memory of the shell by a call", """
class Vec(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
start = int(open(f"/proc/{shell}/maps").read().split("-")[0], 16)
buf = ctypes.create_string_buffer(8)
call(310, shell, ctypes.byref(Vec(ctypes.addressof(buf), 8)), 1, ctypes.byref(Vec(start, 8)), 1, 0)"""),
    of_shell("taking a descriptor of the shell", "call(438, os.pidfd_open(shell), 1, 0)"),
    of_shell("comparing what the shell has open", "call(312, os.getpid(), shell, 0, 1, 1)"),
    Attempt("an inherited descriptor", 'for f in /proc/self/fd/*; do [ -s "$f/secret" ] && echo FIRED && break; done'),
    Attempt("capabilities in the bounding set", "grep -q '^CapBnd:.*[1-9a-f]' /proc/self/status && echo FIRED"),
    Attempt("gaining by set-id programs", "grep -q '^NoNewPrivs:.*0' /proc/self/status && echo FIRED"),
    Attempt("a better priority", '[ "$(nice -n -5 nice 2>/dev/null)" -lt "$(nice)" ] && echo FIRED'),
    c("tracing a child", "call(101, 0)"),
    c("reading a child's memory", """
pid = os.fork()
if pid == 0:
    os.read(0, 1); import signal; signal.pause()
class Vec(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
buf = ctypes.create_string_buffer(8); src = ctypes.create_string_buffer(b"12345678")
a = Vec(ctypes.addressof(buf), 8); b = Vec(ctypes.addressof(src), 8)
r = libc.process_vm_readv(pid, ctypes.byref(a), 1, ctypes.byref(b), 1, 0)
os.kill(pid, 9)
if r != 8: sys.exit(1)"""),
    c("comparing kernel objects", "call(312, os.getpid(), os.getpid(), 0, 0, 1)"),
    c("taking a descriptor of a child", """
pid = os.fork()
if pid == 0:
    import signal; signal.pause()
r = libc.syscall(438, os.pidfd_open(pid), 0, 0)
os.kill(pid, 9)
if r < 0: sys.exit(1)"""),
    c("signal by pidfd", "import signal; signal.pidfd_send_signal(os.pidfd_open(victim), 0)"),
    c("signal to a thread", "call(234, victim, victim, 0)"),
    c("signal with data", "b = ctypes.create_string_buffer(128); b[8:12] = struct.pack('i', -1); call(129, victim, 0, b)"),
    c("signal by a file's owner", "import fcntl; fcntl.fcntl(socket.socketpair()[0], fcntl.F_SETOWN, victim)\n"
      "if not os.path.exists(f'/proc/{victim}'): sys.exit(1)"),
    c("limits of another process", "import resource; resource.prlimit(victim, resource.RLIMIT_NOFILE)"),
    c("priority of another process", "os.setpriority(os.PRIO_PROCESS, victim, 5)"),
    c("processors of another process", "os.sched_getaffinity(victim)"),
    c("locks of another process", "a = ctypes.c_void_p(); b = ctypes.c_size_t(); call(274, victim, ctypes.byref(a), "
      "ctypes.byref(b))"),
    c("session of another process", "os.getsid(victim)"),
    c("tracing another process", "call(101, 0x4206, victim, 0, 0)"),
    c("memory of another process", "open(f'/proc/{victim}/mem', 'rb').close()"),
    c("memory of another process by a call", """
class Vec(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
start = int(open(f"/proc/{victim}/maps").read().split("-")[0], 16)
buf = ctypes.create_string_buffer(8)
call(310, victim, ctypes.byref(Vec(ctypes.addressof(buf), 8)), 1, ctypes.byref(Vec(start, 8)), 1, 0)"""),
    Attempt("exposing another to the memory killer", "echo 900 > /proc/$VICTIM/oom_score_adj && echo FIRED"),
    Attempt("becoming root", "python3 -c 'import os; os.setresuid(0, 0, 0)' && echo FIRED"),
    Attempt("becoming another group", "python3 -c 'import os; os.setresgid(0, 0, 0)' && echo FIRED"),
    Attempt("other groups", "python3 -c 'import os; os.setgroups([4])' && echo FIRED"),
    Attempt("effective capabilities", "grep -q '^CapEff:.*[1-9a-f]' /proc/self/status && echo FIRED"),
    Attempt("running without a filter", "grep -q '^Seccomp:.*0' /proc/self/status && echo FIRED"),
    Attempt("real-time priority", "chrt -f 1 true && echo FIRED"),
    Attempt("command line of our starter", "tr '\\0' ' ' < /proc/$FIRST/cmdline | grep -q stockade-victim && echo FIRED"),
)  # fmt: skip
