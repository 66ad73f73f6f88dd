"""Attacks on promises 17 and 18: sandboxes beside each other, process one."""

from pathlib import Path

from tests.attack.blind import kernel  # noqa: F401 its attacks come first
from tests.attack.blind.ground import Ground, Sealed
from tests.attack.blind.table import attack


@attack(17, "two at once: abstract sockets, memory, queues, keys, /tmp, signals", "one finds what the other holds")
def two_at_once(g: Ground) -> list[str]:
    a = """
m = sys.argv[1]; k = int(m[4:11], 16); rt = ctypes.CDLL('librt.so.1')
s = socket.socket(socket.AF_UNIX); s.bind(chr(0) + m); s.listen()
open('/dev/shm/' + m, 'w').write('x'); open('/tmp/' + m, 'w').write('x');
shm = libc.shmget(k, 4096, 0o1666); rt.mq_open(('/' + m).encode(), 0o102, 0o666, None)
libc.syscall(248, b'user', m.encode(), b'y', 1, -4)
t = socket.socket(); t.bind(('127.0.0.1', 0)); t.listen()
open('ready', 'w').close()
while not os.path.exists('stop'): time.sleep(0.05)
for p in ('/dev/shm/' + m, '/tmp/' + m): os.unlink(p)
libc.shmctl(shm, 0, None); rt.mq_unlink(('/' + m).encode())
"""
    b = """
m = sys.argv[1] + sys.argv[2]; k = int(m[4:11], 16); rt = ctypes.CDLL('librt.so.1')
def conn(): socket.socket(socket.AF_UNIX).connect(chr(0) + m); hit('abstract')
attempt(conn)
for p in ('/dev/shm/' + m, '/tmp/' + m):
    if os.path.exists(p): hit(p)
if libc.shmget(k, 0, 0) >= 0: hit('shm')
if rt.mq_open(('/' + m).encode(), 2) >= 0: hit('mq')
if libc.syscall(249, b'user', m.encode(), 0, 0) >= 0: hit('key')
for p in glob.glob('/proc/[0-9]*/cmdline'):
    try:
        if m in open(p).read(): hit(p)
    except OSError: pass
"""
    first = g.start(a, g.mark)
    got = g.run(b, g.mark[:9], g.mark[9:]).hits
    (g.work / "stop").touch()
    first.wait()
    return got


@attack(17, "locks and watches on files that both see: the ro folder, /usr, /dev/null", "one sees what the other does")
def locks(g: Ground) -> list[str]:
    (g.work / "shared").write_text("x")
    g.own()
    a = """
for path in ('shared', '/usr/bin/env', '/dev/null', '/etc/passwd'):
    f = open(path); globals()['f' + path] = f
    try: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError: pass
open('ready', 'w').close()
while True:
    for path in ('shared', '/usr/bin/which'): os.close(os.open(path, os.O_RDONLY))
    time.sleep(0.1)
"""
    b = """
for path in ('shared', '/usr/bin/env', '/dev/null', '/etc/passwd'):
    try: fcntl.flock(open(path), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError: hit('lock ' + path)
    except OSError: pass
for path in (b'shared', b'/usr/bin/which'):
    fd = libc.inotify_init1(0o4000); libc.inotify_add_watch(fd, path, 0x20)
    time.sleep(1)
    if fd >= 0 and attempt(os.read, fd, 4096): hit('watch ' + path.decode())
"""
    g.start(a, g.mark)
    return g.run(b, mode="ro").hits


@attack(17, "what the first left behind is there for the second", "a mark of the first is found")
def leftovers(g: Ground) -> list[str]:
    places = "['/tmp', '/var/tmp', '/run', '/dev/shm', os.path.expanduser('~'), '.', "
    places += "'/.stockade', '/var', '/dev/mqueue', '/etc', '/usr/local']"
    a = "for p in " + places + ":\n    attempt(lambda: open(p + '/' + sys.argv[1], 'w').write('x'))\n"
    b = """
m = sys.argv[1] + sys.argv[2]
for p in """
    b += places + ":\n    if os.path.exists(p + '/' + m): hit(p)\n"
    g.run(a, g.mark)
    try:
        return g.run(b, g.mark[:9], g.mark[9:]).hits
    finally:
        for place in ("/tmp", "/var/tmp", "/run", "/dev/shm", "/var", "/etc", "/usr/local"):
            (Path(place) / g.mark).unlink(missing_ok=True)


@attack(
    18, "process one by limits, priorities, traces, memory, and every signal", "a call succeeds, or the sandbox ends"
)
def process_one(g: Ground) -> list[str]:
    target = "1" if g.sealed else str(g.holder("print('ready', flush=True); time.sleep(300)", g.mark).pid)
    script = """
pid = int(sys.argv[1]); buffer = ctypes.create_string_buffer(4096)
def call(name, number, *a):
    if libc.syscall(number, *a) >= 0: hit(name)
call('prlimit get', 302, pid, 0, 0, buffer)
call('prlimit cpu', 302, pid, 0, struct.pack('QQ', 1000, 1000), 0)
call('prlimit files', 302, pid, 7, struct.pack('QQ', 64, 64), 0)
call('setpriority', 141, 0, pid, 19); call('sched_setscheduler', 144, pid, 3, struct.pack('i', 0))
call('ioprio_set', 251, 1, pid, 0x6000)
call('sched_setaffinity', 203, pid, 8, struct.pack('Q', 1))
call('sched_setattr', 314, pid, struct.pack('<IIQiIQQQ', 48, 3, 0, 19, 0, 0, 0, 0), 0)
call('process_vm_readv', 310, pid, buffer, 0, buffer, 0, 0); call('ptrace seize', 101, 0x4206, pid, 0, 0)
call('setpgid', 109, pid, 0)
call('migrate_pages', 256, pid, 8, buffer, buffer); call('move_pages', 279, pid, 0, 0, 0, 0, 0)
call('get_robust_list', 274, pid, buffer, buffer)
for name in ('mem', 'environ', 'maps', 'fd', 'root', 'cwd', 'exe', 'syscall', 'stack', 'oom_score_adj', 'auxv', 'io',
    'personality'):
    try:
        os.listdir(f'/proc/{pid}/fd') if name == 'fd' else os.readlink(f'/proc/{pid}/{name}') if name in ('root',
            'cwd', 'exe') else open(f'/proc/{pid}/{name}', 'r+b' if name == 'oom_score_adj' else 'rb').read(1)
        hit('/proc/' + name)
    except OSError: pass
print('before', flush=True)
for number in [n for n in range(1, 65) if n not in (9, 32, 33)] + [9]:
    attempt(os.kill, pid, number)
    libc.syscall(424, libc.syscall(434, pid, 0), number, 0, 0)
time.sleep(0.5)
print('after', flush=True)
"""
    answer = g.run(script, target)
    return answer.hits + ([] if "after" in answer.out else ["ended"])


@attack(18, "process one by its descriptors, sockets and ports", "one of them can be opened or spoken to")
def spoken_to(g: Ground) -> list[str]:
    hold = """
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); u = socket.socket(socket.AF_UNIX)
u.bind(chr(0) + sys.argv[1]); u.listen()
print('ready', flush=True); time.sleep(300)
"""
    target = "" if g.sealed else str(g.holder(hold, g.mark).pid)
    script = """
targets = [sys.argv[1] or '1']
for pid in targets:
    for fd in attempt(os.listdir, f'/proc/{pid}/fd') or []: hit(f'{open(f"/proc/{pid}/comm").read().strip()} fd {fd}')
    p = libc.syscall(434, int(pid), 0)
    for fd in range(0, 64):
        if libc.syscall(438, p, fd, 0) >= 0: hit(f'pidfd_getfd {pid} {fd}')
for line in open('/proc/net/tcp').read().splitlines()[1:]:
    if line.split()[3] == '0A': hit('listens ' + line.split()[1])
for line in open('/proc/net/unix').read().splitlines()[1:]: hit('unix ' + line) if len(line.split()) > 7 else None
for fd in (0, 1, 2):
    try: socket.socket(fileno=os.dup(fd)).getpeername(); hit(f'{fd} is a socket')
    except OSError: pass
"""
    return g.run(script, target).hits


@attack(18, "kill -9 -1, then kill -STOP -1, then two more commands", "the last command is not carried out")
def everybody(g: Ground) -> list[str]:
    got = []
    for number in (9, 19):
        first = f'python3 -c "import os; os.fork() or os.setsid() or os.kill(-1, {number})"'
        if isinstance(g, Sealed):
            # what still runs of the first may stop the shell in the middle of the second, which then times out
            g.bot(first, "true", f"echo alive > alive{number}", flags=["--command-timeout", "4"])
            g.apply()
        else:
            runner = (
                f"import subprocess; subprocess.run(['sh', '-c', {first!r}], timeout=9); open('alive{number}', 'w')"
            )
            command = [
                "/usr/bin/unshare",
                "-Urpf",
                "--mount-proc",
                "--kill-child",
                "timeout",
                "10",
                "sh",
                "-c",
                '/usr/bin/python3 -c "$0"; :',
                runner,
            ]
            g.finish(g.popen(command))
        got += [] if (g.work / f"alive{number}").exists() else [f"signal {number}"]
    return got
