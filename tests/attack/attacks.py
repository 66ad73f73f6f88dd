"""The attacks: each a bash script that prints FIRED when it got through.

Names a script may use: what the doctor's `Bait` gives (SECRET, HOST_PID, HOST_COMM, VARIABLE, PORT, HOST_HOME, PROBE,
FIRST), and of the scene: HOST_DIR (a folder of the host all may write to), SOCKET (a listening unix socket in it),
ABSTRACT (an abstract one), FOLDER (the given folder as the host names it), VICTIM (a process of the host), SHM (a
System V segment's key), HOST_NAME. The working directory is the given folder.

`mark` names a file the host looks for afterwards instead, where only the host can tell.
"""

from dataclasses import dataclass

_C = """export SHM; python3 - <<'PY' && echo FIRED
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    result = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if result < 0: sys.exit(1)
    return result
"""


@dataclass(frozen=True)
class Attack:
    name: str
    script: str
    mark: str | None = None


def c(name: str, body: str) -> Attack:
    """In Python, with `call(number, ...)`; getting to the end is getting through."""
    return Attack(name, f"{_C}{body}\nPY")


FILES = (
    Attack("secret by path", 'grep -q s3cret "$SECRET" && echo FIRED'),
    Attack("secret by dot-dots", 'grep -q s3cret "../../../../../../..$SECRET" && echo FIRED'),
    Attack("secret by a symlink in the folder", 'ln -sf "$SECRET" link; grep -q s3cret link && echo FIRED'),
    Attack("secret through another process's root", "grep -q s3cret /proc/$VICTIM/root$SECRET && echo FIRED"),
    Attack("secret through process 1's root", "grep -q s3cret /proc/$FIRST/root$SECRET && echo FIRED"),
    Attack("secret through another process's cwd", "[ -n \"$(ls -A /proc/$VICTIM/cwd/ 2>/dev/null)\" ] && echo FIRED"),
    Attack("secret by a hard link", 'ln "$SECRET" "$HOST_DIR/hard" && echo FIRED'),
    Attack("a file of the host's /tmp", 'echo x > "$HOST_DIR/mark-plain"', mark="mark-plain"),
    Attack("a file of the host through a symlink", 'ln -s "$HOST_DIR/mark-link" w; echo x > w', mark="mark-link"),
    Attack("the given folder itself", "echo changed > given.txt", mark="FOLDER:given.txt"),
    Attack(
        "a git hook in the given folder",
        "mkdir -p .git/hooks; echo x > .git/hooks/pre-commit",
        mark="FOLDER:.git/hooks/pre-commit",
    ),
    Attack("deleting from the given folder", "rm victim.txt", mark="FOLDER:!victim.txt"),
    Attack("accounts of the host", "[ \"$(wc -l < /etc/passwd)\" -gt 8 ] && echo FIRED"),
    Attack("machine id", "[ -s /etc/machine-id ] && echo FIRED"),
    Attack("name of the host", '[ "$(cat /proc/sys/kernel/hostname)" = "$HOST_NAME" ] && echo FIRED'),
    Attack(
        "path of the folder on the host",
        'x=$(cat /proc/*/cmdline | tr "\\0" " "); case "$x" in *"$FOLDER"*) echo FIRED;; esac',
    ),
    Attack("writing to /etc", "( : > /etc/.stockade-attack ) && rm /etc/.stockade-attack && echo FIRED"),
    Attack("writing to /", "mkdir /.stockade-attack && rmdir /.stockade-attack && echo FIRED"),
    Attack("writing to /dev", "( : > /dev/.stockade-attack ) && rm /dev/.stockade-attack && echo FIRED"),
    Attack("system tree", "[ -n \"$(ls /sys/class 2>/dev/null)\" ] && echo FIRED"),
    Attack("a block device", "for d in loop0 sda vda; do ( exec 3< /dev/$d ) && echo FIRED && break; done"),
    Attack("a device node of our own", "mknod node b 254 0 && rm node && echo FIRED"),
    Attack("an overlay mark of our own", "mknod gone c 0 0 && rm gone && echo FIRED"),
    Attack("set-id by chmod", "cp /bin/true suid; chmod 6755 suid && echo FIRED"),
    Attack(
        "set-id by creating",
        "python3 -c \"import os; os.open('made', os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o4755)\" && echo FIRED",
    ),
    Attack("kernel log", "dd if=/dev/kmsg bs=8192 count=1 of=/dev/null && echo FIRED"),
    Attack("kernel command line", "[ -s /proc/cmdline ] && [ -n \"$(cat /proc/cmdline)\" ] && echo FIRED"),
    Attack("kernel symbols", "grep -qm1 '[1-9a-f]' /proc/kallsyms && echo FIRED"),
    Attack("a sysctl", "( exec 3>>/proc/sys/vm/overcommit_memory ) && echo FIRED"),
    Attack("control groups", "d=/sys/fs/cgroup/pids/.attack; mkdir $d && rmdir $d && echo FIRED"),
)  # fmt: skip

PROCESSES = (
    Attack("seeing a process of the host", "grep -qa stockade-victim /proc/$VICTIM/cmdline && echo FIRED"),
    Attack("environment of any process", 'cat /proc/[0-9]*/environ | grep -qaF "ATTACK_TOKEN=t0ken" && echo FIRED'),
    Attack("own environment", 'env | grep -q "ATTACK_TOKEN=t0ken" && echo FIRED'),
    Attack(
        "signal to a process of the host",
        "grep -qa stockade-victim /proc/$VICTIM/cmdline && kill -0 $VICTIM && echo FIRED",
    ),
    Attack("descriptors of process 1", "[ -n \"$(ls /proc/$FIRST/fd 2>/dev/null)\" ] && echo FIRED"),
    Attack("memory of process 1", "( exec 3< /proc/$FIRST/mem ) && echo FIRED"),
    Attack("map of process 1", "[ -n \"$(cat /proc/$FIRST/maps 2>/dev/null)\" ] && echo FIRED"),
    Attack("an inherited descriptor", 'for f in /proc/self/fd/*; do [ -s "$f/secret" ] && echo FIRED && break; done'),
    Attack("capabilities in the bounding set", "grep -q '^CapBnd:.*[1-9a-f]' /proc/self/status && echo FIRED"),
    Attack("gaining by set-id programs", "grep -q '^NoNewPrivs:.*0' /proc/self/status && echo FIRED"),
    Attack("a better priority", "[ \"$(nice -n -5 nice 2>/dev/null)\" -lt 0 ] && echo FIRED"),
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
)  # fmt: skip

KERNEL = (
    Attack("mounting a tmpfs", "mkdir -p m; mount -t tmpfs none m && umount m && echo FIRED"),
    Attack("unshare a user namespace", "unshare -U true && echo FIRED"),
    Attack("unshare a mount namespace", "unshare -m true && echo FIRED"),
    Attack("a sandbox in the sandbox", "bwrap --unshare-user --ro-bind / / true && echo FIRED"),
    Attack("entering a namespace", "nsenter --uts=/proc/self/ns/uts true && echo FIRED"),
    Attack("chroot", "chroot / true && echo FIRED"),
    Attack("setting the host name", 'hostname "$(hostname)" && echo FIRED'),
    Attack("32-bit system calls", """python3 - <<'PY' && echo FIRED
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
    c("typing into a terminal", """
import fcntl, pty
a, b = pty.openpty(); fcntl.ioctl(b, 0x5412, b"x")"""),
    c("typing into a terminal, high bits set", """
import pty
a, b = pty.openpty(); call(16, b, (1 << 32) | 0x5412, ctypes.c_char_p(b"x"))"""),
)  # fmt: skip

_CONNECT = 'python3 -c "import socket,sys; socket.socket(1).connect(sys.argv[1].replace(chr(64), chr(0)))"'

NETWORK = (
    Attack("a port of the host", "( exec 3<>/dev/tcp/127.0.0.1/$PORT ) && echo FIRED"),
    Attack("a unix socket of the host", f'{_CONNECT} "$SOCKET" && echo FIRED'),
    Attack("an abstract socket of the host", f'{_CONNECT} "@$ABSTRACT" && echo FIRED'),
    Attack("a unix socket in the given folder", f"{_CONNECT} live.sock && echo FIRED"),
    Attack("the host's connections", "grep -qi \":$(printf %04X $PORT) \" /proc/net/tcp && echo FIRED"),
    Attack("a network device", "[ \"$(tail -n +3 /proc/net/dev | grep -vc ' *lo:')\" -gt 0 ] && echo FIRED"),
    c("shared memory of the host", "call(29, int(os.environ.get('SHM', '0')), 8, 0)"),
)  # fmt: skip

_FILL = "head -c 100M /dev/zero > $f; s=$(stat -c %s $f); rm -f $f; [ $s = 104857600 ] && echo FIRED"

RESOURCES = (
    Attack("300 processes", """python3 - <<'PY' && echo FIRED
import os, sys, signal
pids = []
try:
    for _ in range(300):
        pid = os.fork()
        if pid == 0:
            signal.pause()
        pids.append(pid)
except OSError:
    pass
for pid in pids: os.kill(pid, 9); os.waitpid(pid, 0)
sys.exit(0 if len(pids) == 300 else 1)
PY"""),
    Attack("600 MB of memory", "python3 -c \"x = bytearray(600 << 20)\" && echo FIRED"),
    Attack("100 MB in /tmp", f"f=/tmp/.stockade-fill; {_FILL}"),
    Attack("100 MB in /dev/shm", f"f=/dev/shm/.stockade-fill; {_FILL}"),
    Attack("a file of 100 MB in the folder", f"f=fill; {_FILL}"),
    Attack("a sparse file of 1 TB", "truncate -s 1T sparse && rm sparse && echo FIRED"),
    Attack("5000 open files", "python3 -c \"x = [open('/dev/null') for _ in range(5000)]\" && echo FIRED"),
    Attack("raising a limit", "ulimit -Sn 3000 && echo FIRED"),
)  # fmt: skip

ATTACKS = (*FILES, *PROCESSES, *KERNEL, *NETWORK, *RESOURCES)
