"""Kernel interfaces: namespaces, mounts, and calls with a history of holes. Numbers are those of x86_64."""

# ruff: noqa: E501 - a script stays in one piece

from tests.attack.attempts.attempt import Attempt, c

KERNEL = (
    Attempt("mounting a tmpfs", "mkdir -p m; mount -t tmpfs none m && umount m && echo FIRED"),
    Attempt("unshare a user namespace", "unshare -U true && echo FIRED"),
    Attempt("unshare a mount namespace", "unshare -m true && echo FIRED"),
    Attempt("a sandbox in the sandbox", "bwrap --unshare-user --ro-bind / / true && echo FIRED"),
    Attempt("entering a namespace", "nsenter --uts=/proc/self/ns/uts true && echo FIRED"),
    Attempt("chroot", "chroot / true && echo FIRED"),
    Attempt("setting the host name", 'hostname "$(hostname)" && echo FIRED'),
    Attempt("32-bit system calls", """python3 - <<'PY' && echo FIRED
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes([0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3]))
f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
import sys; sys.exit(0 if f() > 0 else 1)
PY"""),
    c("clone a user namespace", """
r = libc.syscall(56, ctypes.c_long(0x10000000 | 17), 0, 0, 0, 0)
if r == 0: os._exit(0)
if r < 0: sys.exit(1)
os.waitpid(r, 0)"""),
    c("clone3", """
args = (ctypes.c_uint64 * 11)(); args[0] = 0x10000000; args[4] = 17
r = libc.syscall(435, ctypes.byref(args), ctypes.c_size_t(88))
if r == 0: os._exit(0)
if r < 0: sys.exit(1)
os.waitpid(r, 0)"""),
    c("a key", "call(248, ctypes.c_char_p(b'user'), ctypes.c_char_p(b'stockade'), ctypes.c_char_p(b'x'), 1, -2)"),
    c("the session keyring", "call(250, 0, -3, 1)"),
    c("io_uring", "b = ctypes.create_string_buffer(120); call(425, 1, b)"),
    c("userfaultfd", "call(323, 1)"),
    c("bpf", "b = (ctypes.c_uint32 * 32)(2, 4, 4, 1); call(321, 0, b, 72)"),
    c("perf events", "b = (ctypes.c_uint32 * 32)(1, 128); call(298, b, 0, -1, -1, 0)"),
    c("fanotify", "call(300, 0, 0)"),
    c("file handles", """
h = ctypes.create_string_buffer(136); h[0:4] = (128).to_bytes(4, "little"); m = ctypes.c_int()
call(303, -100, ctypes.c_char_p(b"/usr"), h, ctypes.byref(m), 0)"""),
    c("memory policy", "call(239, 0, 0, 0, 0, 0)"),
    c("local descriptor table", "b = ctypes.create_string_buffer(64); call(154, 0, b, 64)"),
    c("the new mount calls", "call(430, ctypes.c_char_p(b'tmpfs'), 0)"),
    c("cloning a mount", "call(428, -100, ctypes.c_char_p(b'/usr'), 1)"),
    c("kernel log call", "call(103, 10, 0, 0)"),
    c("clock", "b = ctypes.create_string_buffer(256); call(159, b)"),
    c("vsock", "import socket; socket.socket(40, 1)"),
    c("raw socket", "import socket; socket.socket(2, 3, 1)"),
    c("packet socket", "import socket; socket.socket(17, 3, 0)"),
    c("audit netlink", "import socket; socket.socket(16, 3, 9)"),
    c("UDP-Lite", "import socket; socket.socket(2, 2, 136)"),
    c("multipath TCP", "import socket; socket.socket(2, 1, 262)"),
    c("a program in the kernel as a socket's filter", """
import socket
one = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFF))
s = socket.socket(1, 2); s.setsockopt(1, 26, struct.pack("HxxxxxxQ", 1, ctypes.addressof(one)))"""),
    c("memory that is all executable", "call(135, 0x0400000)"),
    c("the personality of 32 bits", "call(135, 8)"),
    c("a line discipline", """
import fcntl, pty
a, b = pty.openpty(); fcntl.ioctl(b, 0x5423, (27).to_bytes(4, "little"))"""),
    c("typing into a terminal", """
import fcntl, pty
a, b = pty.openpty(); fcntl.ioctl(b, 0x5412, b"x")"""),
    c("typing into a terminal, high bits set", """
import pty
a, b = pty.openpty(); call(16, b, (1 << 32) | 0x5412, ctypes.c_char_p(b"x"))"""),
    *(Attempt(f"unshare a {name} namespace", f"unshare {flag} true && echo FIRED")
      for name, flag in (("network", "-n"), ("process", "-pf"), ("message", "-i"), ("control group", "-C"),
                         ("time", "-T"))),
    c("domain name", "n = socket.gethostname().encode(); call(171, ctypes.c_char_p(n), len(n))"),
    c("accounting", "call(163, 0)"),
    c("quotas", "call(179, 0x80000100, 0, 0, 0)"),
    c("memory policy of our own", "call(238, 0, 0, 0)"),
    c("moving pages", "call(279, 0, 0, 0, 0, 0, 0)"),
    c("listing mounts", """
request = struct.pack("IIQQ", 24, 0, 0xffffffffffffffff, 0)
out = (ctypes.c_uint64 * 8)(); call(458, ctypes.c_char_p(request), out, 8, 0)"""),
    c("mount attributes", "call(442, -100, ctypes.c_char_p(b'/'), 0, ctypes.c_char_p(struct.pack('QQQQ', 0, 0, 0, 0)), 32)"),
    c("opening by a handle", """
h = ctypes.create_string_buffer(136); h[0:4] = struct.pack("i", 128); m = ctypes.c_int()
call(303, -100, ctypes.c_char_p(b"/usr"), h, ctypes.byref(m), 0)
call(304, os.open("/usr", 0), h, 0)"""),
    c("unmounting", "r = libc.umount2(b'/proc/self', 0)\nif ctypes.get_errno() != 22: sys.exit(1)"),
    c("clearing a keyring", "call(250, 7, call(250, 1, 0), 0, 0, 0)"),
    c("advice for another process", """
fd = os.pidfd_open(victim)
class Vec(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
start = int(open(f"/proc/{victim}/maps").read().split("-")[0], 16)
call(440, fd, ctypes.byref(Vec(start, 4096)), 1, 20, 0)"""),
    c("a reboot", "r = libc.syscall(169, 1, 2, 3, 0)\nif ctypes.get_errno() in (1, 38): sys.exit(1)"),
    c("setting the clock", "r = libc.syscall(227, 0, 0)\nif ctypes.get_errno() in (1, 38): sys.exit(1)"),
    c("swap", "r = libc.syscall(168, b'/none')\nif ctypes.get_errno() in (1, 38): sys.exit(1)"),
    c("device events", "socket.socket(16, 3, 15)"),
    c("socket diagnosis", "socket.socket(16, 3, 4)"),
    c("packet filter rules", "socket.socket(16, 3, 12)"),
    c("the new openat", "how = struct.pack('QQQ', 0, 0, 0); call(437, -100, ctypes.c_char_p(b'/usr'), ctypes.c_char_p(how), 24)"),
    c("set-id by the new chmod", "open('new', 'w').close(); call(452, -100, ctypes.c_char_p(b'new'), 0o4755, 0)"),
    c("pasting into a terminal", """
import pty
a, b = pty.openpty(); r = libc.ioctl(b, 0x541C, ctypes.c_char_p(b"\\x03"))
if ctypes.get_errno() in (1, 38): sys.exit(1)"""),
)  # fmt: skip
