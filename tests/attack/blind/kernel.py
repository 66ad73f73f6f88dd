"""Attacks on promises 7 to 11: the host's things inside, kernel, network."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

from tests.attack.blind.ground import Ground
from tests.attack.blind.table import attack


@attack(7, "files, pipes, sockets and folders left open by whoever started it", "one is open inside, or read")
def inherited(g: Ground) -> list[str]:
    secret = os.open(g.private / "key", os.O_RDONLY)
    folder = os.open(g.private, os.O_RDONLY)
    reader, writer = os.pipe()
    here, there = socket.socketpair()
    os.write(writer, b"TOPSECRET")
    there.send(b"TOPSECRET")
    script = """
for fd in range(3, 1024):
    try: os.fstat(fd)
    except OSError: continue
    for way in (lambda: os.pread(fd, 99, 0), lambda: os.read(os.open('key', os.O_RDONLY, dir_fd=fd), 99),
                lambda: os.read(os.open(f'/proc/self/fd/{fd}', os.O_RDONLY | os.O_NONBLOCK), 99), lambda: os.read(fd,
                    99)):
        if b'TOPSECRET' in (attempt(way) or b''):
            hit(fd); break
"""
    try:
        return g.run(script, fds=[secret, folder, reader, here.fileno()]).hits
    finally:
        for fd in (secret, folder, reader, writer):
            os.close(fd)
        here.close()
        there.close()


@attack(7, "variables by odd names, in every process's environment, words and memory", "a value of the user's is found")
def variables(g: Ground) -> list[str]:
    word = "VALUE" + "OFMINE"
    names = ("DEPLOY_KEY", "BASH_FUNC_x%%", "LC_ALL", "TZ", "LD_AUDIT_X", "STOCKADE_REDACT_X", "no_proxy", "EDITOR")
    env = dict.fromkeys(names, word)
    env |= {"TERM": "xterm" + word, "COLORTERM": word, "SSH_AUTH_SOCK": "/" + word}
    script = """
word = ('VALUE' + 'OFMINE').encode()
for path in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline'):
    try: data = open(path, 'rb').read()
    except OSError: continue
    if word in data: hit(path)
if word.decode() in str(os.environ): hit('environ')
"""
    return g.run(script, env=env).hits


@contextlib.contextmanager
def server(family: int, address: object, kind: int = socket.SOCK_STREAM) -> Iterator[list[bytes]]:
    """A service of the host that gives a key to whoever comes. What it heard is whole when the block is left."""
    heard: list[bytes] = []
    listener = socket.socket(family, kind)
    listener.settimeout(0.2)
    listener.bind(address)  # type: ignore[arg-type]
    if kind == socket.SOCK_STREAM:
        listener.listen()
    done = threading.Event()

    def serve() -> None:
        while True:
            try:
                if kind == socket.SOCK_DGRAM:
                    heard.append(listener.recv(99))
                    continue
                connection, _ = listener.accept()
            except OSError:
                if done.is_set():
                    return
                continue
            heard.append(b"connected")
            with connection, contextlib.suppress(OSError):
                connection.send(b"THEKEY")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield heard
    finally:
        done.set()
        thread.join()
        listener.close()


@attack(7, "a socket of an agent of the user's that lies in the folder (ro, overlay)", "it is spoken to from inside")
def socket_in_folder(g: Ground) -> list[str]:
    script = """
for path in ('agent.sock', 'sub/agent.sock', '/proc/self/cwd/agent.sock'):
    s = socket.socket(socket.AF_UNIX); s.settimeout(3)
    try:
        s.connect(path)
        if s.recv(99) == b'THEKEY': hit(path)
    except OSError as error: print(path, error)
"""
    got = []
    old = os.umask(0)
    try:
        (g.work / "sub").mkdir()
        g.own()
        here = os.open(g.work, os.O_RDONLY)
        with server(socket.AF_UNIX, f"/proc/self/fd/{here}/agent.sock"):
            os.link(g.work / "agent.sock", g.work / "sub" / "agent.sock")
            g.own()
            for mode in ("ro", "overlay"):
                got += [f"{mode}: {h}" for h in g.run(script, mode=mode).hits]
        os.close(here)
    finally:
        os.umask(old)
    return got


@attack(8, "signals, traces and limits by number, by descriptor, by F_SETOWN", "a process of the host is reached")
def reached(g: Ground) -> list[str]:
    victim = g.holder("print('ready', flush=True); time.sleep(300)", g.mark)
    script = """
pid = int(sys.argv[1])
def owned():
    r, w = os.pipe(); fcntl.fcntl(r, fcntl.F_SETOWN, pid)
    if fcntl.fcntl(r, fcntl.F_GETOWN) == pid: hit('F_SETOWN')
def call(name, number, *a):
    if libc.syscall(number, *a) >= 0: hit(name)
attempt(owned)
call('kill 0', 62, pid, 0); call('pidfd_open', 434, pid, 0); call('getpgid', 121, pid)
call('ptrace seize', 101, 0x4206, pid, 0, 0); call('setpriority', 141, 0, pid, 5); call('prlimit', 302, pid, 7, 0, 0)
call('sched_getaffinity', 204, pid, 128, ctypes.create_string_buffer(128)); call('ioprio', 251, 1, pid, 0x6000)
call('tgkill', 234, pid, pid, 0); call('sigqueue', 129, pid, 12, ctypes.create_string_buffer(128))
if os.path.exists(f'/proc/{pid}/stat'): hit('/proc')
"""
    got = g.run(script, str(victim.pid)).hits
    return got + ([] if victim.poll() is None else ["it ended"])


@attack(8, "System V memory, messages and semaphores and a POSIX queue, free for all", "one of the host's is found")
def ipc(g: Ground) -> list[str]:
    key = int(g.mark[4:11], 16)
    hold = """
key = int(sys.argv[1]); rt = ctypes.CDLL('librt.so.1')
a, b, c = libc.shmget(key, 4096, 0o1666), libc.msgget(key, 0o1666), libc.semget(key, 1, 0o1666)
os.umask(0); q = rt.mq_open(sys.argv[2].encode(), 0o102, 0o666, None)
print('ready', flush=True); sys.stdin.read()
libc.shmctl(a, 0, None); libc.msgctl(b, 0, None); libc.semctl(c, 0, 0); rt.mq_unlink(sys.argv[2].encode())
"""
    script = """
key = int(sys.argv[1]); rt = ctypes.CDLL('librt.so.1')
for name, got in (('shm', libc.shmget(key, 0, 0)), ('msg', libc.msgget(key, 0)), ('sem', libc.semget(key, 0, 0)),
                  ('mq', rt.mq_open(sys.argv[2].encode(), 2))):
    if got >= 0: hit(name)
if re.search(rf'^\\s*{key}\\b', open('/proc/sysvipc/shm').read(), re.M): hit('seen')
"""
    holder = g.holder(hold, str(key), "/" + g.mark)
    got = g.run(script, str(key), "/" + g.mark).hits
    assert holder.stdin is not None
    holder.stdin.close()
    holder.wait()
    return got


@attack(8, "command lines, sockets, locks and /dev/shm of the host", "a trace of one of its processes is seen")
def seen(g: Ground) -> list[str]:
    hold = """
path = '/dev/shm/' + sys.argv[1]
f = open(path, 'w'); f.write('TOPSECRET'); f.flush(); fcntl.flock(f, fcntl.LOCK_EX)
print('inode', os.fstat(f.fileno()).st_ino, flush=True)
s = socket.socket(socket.AF_UNIX); s.bind(chr(0) + sys.argv[1]); s.listen()
print('ready', flush=True); sys.stdin.read(); os.unlink(path)
"""
    holder = g.popen(["/usr/bin/python3", "-c", "import fcntl,os,socket,sys\n" + hold, g.mark], stdin=-1)
    assert holder.stdout is not None
    assert holder.stdin is not None
    inode = holder.stdout.readline().split()[1].decode()
    holder.stdout.readline()
    script = """
half, other, inode = sys.argv[1:]
mark = half + other
for path in glob.glob('/proc/[0-9]*/cmdline') + ['/proc/net/unix', '/proc/self/mountinfo']:
    try: data = open(path).read()
    except OSError: continue
    if mark in data: hit(path)
if os.path.exists('/dev/shm/' + mark): hit('/dev/shm')
if ':' + inode + ' ' in open('/proc/locks').read(): hit('/proc/locks')
"""
    got = g.run(script, g.mark[:9], g.mark[9:], inode).hits
    holder.stdin.close()
    holder.wait()
    return got


@attack(9, "set-id programs: su, and what they become", "a process that the attacker started is root")
def set_id(g: Ground) -> list[str]:
    script = """
for program in ('/usr/bin/su', '/usr/bin/passwd', '/usr/bin/chsh', '/usr/bin/mount'):
    if not os.path.exists(program): continue
    try: p = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError: continue
    for _ in range(40):
        time.sleep(0.05)
        try: text = open(f'/proc/{p.pid}/status').read()
        except OSError: break
        if program in open(f'/proc/{p.pid}/cmdline').read() and re.search(r'^Uid:\\s+\\d+\\s+0\\s', text, re.M):
            hit(program); break
    p.kill()
"""
    return g.run(script).hits


@attack(9, "namespaces by unshare, clone, clone3, by the 32-bit gate and x32", "one is made")
def namespaces(g: Ground) -> list[str]:
    script = """
def child(name, function):
    pid = os.fork()
    if not pid:
        try: os._exit(0 if function() == 0 else 1)
        except BaseException: os._exit(1)
    if os.waitpid(pid, 0)[1] == 0: hit(name)
page = mmap.mmap(-1, 4096, prot=7) if attempt(lambda: mmap.mmap(-1, 4096, prot=7)) else None
def gate(number, argument):  # mov eax, number; mov ebx, argument; int 0x80; ret, with rbx kept
    page.seek(0)
    page.write(bytes([0x53, 0xb8]) + struct.pack('<I', number) + b'\\xbb' + struct.pack('<I', argument)
        + b'\\xcd\\x80\\x5b\\xc3')
    at = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return ctypes.CFUNCTYPE(ctypes.c_int)(at)()
for flag in (0x10000000, 0x10000000 | 0x20000, 0x10000000 | 0x40000000, 0x10000000 | 0x20000000):
    child(f'unshare {flag:x}', lambda: libc.syscall(272, flag))
    child(f'int 80 {flag:x}', lambda: gate(310, flag))
    child(f'x32 {flag:x}', lambda: libc.syscall(0x40000000 | 272, flag))
    def cloned():
        got = libc.syscall(56, flag | 17, 0, 0, 0, 0)
        if got == 0: os._exit(0)
        return 0 if got > 0 else 1
    child(f'clone {flag:x}', cloned)
    def cloned3():
        got = libc.syscall(435, struct.pack('<11Q', flag, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88)
        if got == 0: os._exit(0)
        return 0 if got > 0 else 1
    child(f'clone3 {flag:x}', cloned3)
"""
    return g.run(script).hits


@attack(9, "io_uring, userfaultfd, BPF, keys and other rare calls", "one of them answers")
def rare_calls(g: Ground) -> list[str]:
    script = """
buffer = ctypes.create_string_buffer(4096)
calls = {'io_uring_setup': (425, 4, buffer), 'userfaultfd': (323, 1), 'bpf': (321, 0, buffer, 64), 'add_key': (248,
    b'user', b'x', b'y', 1, -2),
 'keyctl': (250, 0, -3, 1), 'perf_event_open': (298, buffer, 0, -1, -1, 0), 'process_vm_readv': (310, os.getpid(),
     buffer, 0, buffer, 0, 0),
 'kcmp': (312, os.getpid(), os.getpid(), 0, 0, 0), 'fanotify_init': (300, 0x200, 0), 'fsopen': (430, b'tmpfs', 0),
     'open_tree': (428, -100, b'/', 1),
 'modify_ldt': (154, 0, buffer, 16), 'pidfd_getfd': (438, libc.syscall(434, os.getpid(), 0), 1, 0),
     'name_to_handle_at': (303, -100, b'/', buffer, buffer, 0),
 'memfd_secret': (447, 0), 'syslog': (103, 10, 0, 0), 'lookup_dcookie': (212, 0, buffer, 9),
     'x32 getpid': (0x40000000 | 39,)}
for name, call in calls.items():
    ctypes.set_errno(0)
    if libc.syscall(*call) >= 0: hit(name)
"""
    return g.run(script).hits


@attack(10, "the network's settings, in a namespace of one's own and in this one", "one was written")
def net_settings(g: Ground) -> list[str]:
    script = """
def write(path):
    try:
        value = open(path).read(); open(path, 'w').write(value); hit(path)
    except OSError: pass
for path in ('/proc/sys/net/ipv4/ip_forward', '/proc/sys/kernel/core_pattern',
    '/proc/sys/kernel/domainname'): write(path)
pid = os.fork()
if not pid:
    libc.unshare(0x10000000 | 0x40000000); write('/proc/sys/net/ipv4/ip_forward'); os._exit(0)
os.waitpid(pid, 0)
"""
    return g.run(script).hits


@attack(10, "what /proc lets a process set for itself and for the others", "one was written")
def own_settings(g: Ground) -> list[str]:
    script = """
for pid in ['self', *filter(str.isdigit, os.listdir('/proc'))] if sys.argv[1] == 'inside' else ['self']:
    for name, value in (('oom_score_adj', '1000'), ('coredump_filter', '0x7f'), ('timerslack_ns', '100'),
        ('autogroup', '0'), ('loginuid', '5')):
        try:
            with open(f'/proc/{pid}/{name}', 'w') as f: f.write(value)
            hit(('process one: ' if pid == '1' else 'its own: ') + name)
        except OSError: pass
"""
    return sorted(set(g.run(script, "inside" if g.sealed else "outside").hits))


@attack(
    10,
    "devices: the times, modes and names in /dev, and those that should not be there",
    "one was changed on the host, or opened",
)
def devices(g: Ground) -> list[str]:
    nodes = ("null", "zero", "full", "random", "urandom", "tty")
    before = {n: (s.st_mtime_ns, s.st_mode) for n in nodes for s in [os.stat("/dev/" + n)]}
    script = """
for name in os.listdir('/dev'):
    path = '/dev/' + name
    attempt(os.utime, path); attempt(os.chmod, path, os.stat(path).st_mode & 0o7777 ) if os.path.exists(path) else None
if sys.argv[1] == 'inside':
    for name in ('fuse', 'kvm', 'kmsg', 'net/tun', 'vsock', 'loop0', 'loop-control', 'vda', 'mem', 'port', 'hpet',
        'snapshot', 'userfaultfd'):
        try: os.close(os.open('/dev/' + name, os.O_RDWR)); hit(name)
        except OSError: pass
    for way in (lambda: os.symlink('x', '/dev/evil'), lambda: os.rename('/dev/null', '/dev/n'),
        lambda: os.mknod('/dev/evil', 0o666)):
        try: way(); hit('names in /dev')
        except OSError: pass
"""
    got = g.run(script, "inside" if g.sealed else "outside").hits
    after = {n: (s.st_mtime_ns, s.st_mode) for n in nodes for s in [os.stat("/dev/" + n)]}
    return got + [f"the host's /dev/{n}" for n in nodes if before[n] != after[n]]


@attack(11, "an abstract socket of the host", "it is connected to")
def abstract(g: Ground) -> list[str]:
    script = """
s = socket.socket(socket.AF_UNIX); s.settimeout(3)
try:
    s.connect(chr(0) + sys.argv[1])
    if s.recv(9) == b'THEKEY': hit('abstract')
except OSError: pass
"""
    with server(socket.AF_UNIX, "\0" + g.mark):
        return g.run(script, g.mark).hits


@attack(
    11, "TCP and UDP to this machine in many spellings, mapped IPv6, vsock, netlink", "a listener of the host hears it"
)
def loopback(g: Ground) -> list[str]:
    with contextlib.ExitStack() as stack:
        heard = []
        port = 20000 + int(g.mark[4:8], 16) % 20000
        heard.append(stack.enter_context(server(socket.AF_INET6, ("::", port))))
        heard.append(stack.enter_context(server(socket.AF_INET, ("0.0.0.0", port + 1), socket.SOCK_DGRAM)))
        mine = socket.gethostbyname(socket.gethostname())
        script = """
port = int(sys.argv[1])
for address in ('127.0.0.1', '::1', '::ffff:127.0.0.1', '127.1.2.3', '0.0.0.0', sys.argv[2], '169.254.169.254',
    'fe80::1', 'localhost'):
    for family in (socket.AF_INET, socket.AF_INET6):
        for kind, p in ((socket.SOCK_STREAM, port), (socket.SOCK_DGRAM, port + 1)):
            try:
                s = socket.socket(family, kind); s.settimeout(0.5); s.connect((address, p)); s.send(b'inside')
            except OSError: pass
for cid in (1, 2):
    try: s = socket.socket(40, socket.SOCK_STREAM); s.settimeout(0.5); s.connect((cid, port)); hit('vsock')
    except OSError: pass
"""
        got = g.run(script, str(port), mine).hits
    return got + [str(h) for h in heard if h]


@attack(
    11, "a named pipe of the host that lies in the folder (ro, overlay)", "bytes go through it, one way or the other"
)
def pipe_in_folder(g: Ground) -> list[str]:
    got = []
    for mode in ("ro", "overlay"):
        for name in ("in", "out"):
            os.mkfifo(g.work / name)
            (g.work / name).chmod(0o666)
        g.own()
        reader = os.open(g.work / "in", os.O_RDWR | os.O_NONBLOCK)
        writer = os.open(g.work / "out", os.O_RDWR | os.O_NONBLOCK)
        os.write(writer, b"THEKEY")
        script = """
def put(): os.write(os.open('in', os.O_WRONLY | os.O_NONBLOCK), b'inside')
def take():
    if b'THEKEY' in os.read(os.open('out', os.O_RDONLY | os.O_NONBLOCK), 99): hit('read')
attempt(put); attempt(take)
"""
        got += [f"{mode}: {h}" for h in g.run(script, mode=mode).hits]
        with contextlib.suppress(BlockingIOError):
            got += [f"{mode}: wrote"] if b"inside" in os.read(reader, 99) else []
        os.close(reader)
        os.close(writer)
        for name in ("in", "out"):
            (g.work / name).unlink()
    return got
