"""Command lines built from Bash's grammar, and what they do when they are run: watched, in a sandbox of their own.

The builder knows nothing of the table of `--approve rules`: the options of a program are those that its own `--help`
names, the words those of the folder that is made for it, in which files are called like options. An effect is a file
that was made, changed or touched, a program started that the line does not name, a connection, a signal, a change of
what the shell knows.
"""

import contextlib
import functools
import json
import os
import random
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_READERS = """ls cat head tail wc grep egrep rg find sort uniq cut tr diff cmp comm stat file du df pwd echo printf date
id uname which type jq sed xxd od hexdump basename dirname realpath readlink test true false seq sha256sum md5sum
nl tac rev fold paste column strings ps join expand env printenv command hostname cd base64 expr cksum whoami
nproc python3 bash"""
_OTHERS = """touch cp mv rm tee dd ln mkdir awk perl sh xargs time timeout nice env git export alias set eval source
read trap hash exec declare mapfile kill tree split shuf install truncate ./evil ./ls /bin/ls . [ [[ let unset
builtin enable shopt coproc"""
FILES = (
    "a.txt",
    "b.txt",
    "d",
    "d/c.c",
    "c.c",
    "evil",
    "new",
    "-",
    "/etc/passwd",
    "/dev/null",
    "no such",
    "./-o",
    "d/*.c",
)
NAMED = ("-o", "-delete", "--output=new", "-exec", "--compress-program=.evil", "-fprint", "-n", "x.txt", "--pre=.evil")
"""Files that a pattern may turn into options."""
READERS, OTHERS = _READERS.split(), _OTHERS.split()
VALUES = {
    "A": "-o new",
    "B": "--compress-program=./evil",
    "C": "a.txt new",
    "D": "*",
    "E": "a[$(touch new)]",
    "F": "",
    "O": "-o",
    "P": "-fprint",
    "S": "w new",
    "PS4": "$(touch new)",
}
"""Of the environment that the lines are run in."""
WORDS = (
    "1", "-1", "2,3", "a", "x y", "1p", "1,2p", "$p", "w new", "1w new", "1e touch new", "s/a/b/w new", "+%F", "%s",
    "%n", "%s%n", "a[$(touch new)]", "PATH", "new", "*.txt", ".", "..", "/a/p", ";", "+", "{}", "(", ")", "!",
    "a=b", "größe", "\\", "touch new", "./evil", "-v", "-", "--", "f", "name", "0", "utf8", "a*", "[ab]", "~",
    "~/x", "#x", "a#b", "=", "^a", "%", ",",
)  # fmt: skip
ODD = (
    "\\\n", "\r", "\x0b", "\xa0", "\u2028", "\x00", "\x01", "\x7f", "$", "`", "\\", "'", '"', "{", "}", "(", ")",
    "#", "\n", "&", ">", "<", "!", "~", "*", "\t", ";", "|", "=", "[", "]",
)  # fmt: skip


HARMFUL = ("touch new", "touch", "./evil", "a[$(touch new)]", "-v", "%n", "PATH", "w new", "new")
REDIRECTIONS = (
    "2>/dev/null", "> /dev/null 2>&1", "> new", "2>> new", ">| new", "< a.txt", "&> new", ">&2", "<> new", "<<< x",
    "{PATH}>/dev/null", "> /dev/null/../new",
)  # fmt: skip
EXPANSIONS = (
    "${A}", "*", "*.txt", "-*", "./*", "{a,b}.txt", "$?", '"$?"', "$'new'", '$"new"', "$((1+1))",
    "$((a[$(touch new)]))", "$(touch new)", "`touch new`", "~", "$1", "$@",
)  # fmt: skip


@functools.cache
def options_of(program: str) -> tuple[str, ...]:
    """As its `--help` names them; those of every program where there is none."""
    try:
        done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=5, check=False)
        text = done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired):
        text = ""
    found = re.findall(r"(?<![\w-])(--?[A-Za-z0-9][\w-]*=?)", text)
    return tuple(dict.fromkeys(found)) or ("-a", "-n", "-v", "-o", "--output=", "-i", "-e", "-s", "-c")


class Builder:
    """Lines without end, the same for the same `seed`, mostly of these `programs`."""

    def __init__(self, seed: int, programs: Sequence[str] = READERS) -> None:
        self.chance, self.programs = random.Random(seed), programs

    def lines(self) -> Iterator[str]:
        while True:
            line = self._line()
            if self._one_in(12):  # a stray character
                place = self.chance.randrange(len(line) + 1)
                line = line[:place] + self.chance.choice(ODD) + line[place:]
            yield line

    def _one_in(self, number: int) -> bool:
        return self.chance.randrange(number) == 0

    def _line(self) -> str:
        line = self._command()
        while self._one_in(4):
            line += self.chance.choice((" | ", " && ", " || ", "; ", "\n", " |& ", ";", "|")) + self._command()
        match self.chance.randrange(40):
            case 0:
                return self.chance.choice(
                    ("( {} )", "{{ {}; }}", "! {}", "{} &", "time {}", "if {}; then ls; fi")
                ).format(line)
            case 1:
                return self.chance.choice(("for f in *; do {}; done", "f() {{ {}; }}; f", "{} # words", "# {}")).format(
                    line
                )
            case 2:
                return f"echo {self.chance.choice(('$({})', '`{}`', '<({})', '>({})', '${{x:-$({})}}')).format(line)}"
            case 3:
                return f"cat <<{self.chance.choice(('E', '-E'))}\n{line}\nE"
            case _:
                return line

    def _command(self) -> str:
        chance = self.chance
        program = chance.choice(OTHERS) if self._one_in(12) else chance.choice(self.programs)
        words = [program]
        if self._one_in(25):
            words.insert(
                0, chance.choice(("PATH=.", "LD_PRELOAD=./evil", "IFS=a", "GIT_PAGER=./evil", "x=1", "BASH_ENV=evil"))
            )
        for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4))):
            if self._one_in(2) and (options := options_of(program)):
                option = chance.choice(options)
                value = self._word() if option.endswith("=") or self._one_in(8) else ""
                words.append(option + value)
                if self._one_in(6):
                    words.append(chance.choice((self._word(), "--")))
            else:
                words.append(self._word())
        if self._one_in(12):
            words.append(chance.choice(REDIRECTIONS))
        return chance.choice((" ", " ", " ", "  ", "\t")).join(words)

    def _word(self) -> str:
        chance = self.chance
        kind = chance.randrange(24)
        if kind < 10:
            return chance.choice(FILES[:4]) if self._one_in(2) else self._quoted(chance.choice(FILES))
        if kind < 17:
            return self._quoted(chance.choice(HARMFUL if self._one_in(3) else WORDS))
        name = chance.choice(tuple(VALUES))
        return chance.choice((f"${name}", f'"${name}"', f"a${name}", f'"a/${name}"', *EXPANSIONS))

    def _quoted(self, text: str) -> str:
        match self.chance.randrange(5):
            case 0:
                return text
            case 1:
                return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
            case 2:
                return re.sub(r"([^\w./-])", r"\\\1", text)
            case _:
                return "'" + text.replace("'", "'\\''") + "'"


@dataclass(frozen=True)
class Effect:
    """What a line did that it should not."""

    line: str
    what: str


_CALLS = (
    "execve,execveat,unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,rmdir,link,linkat,symlink,"
    "symlinkat,mknod,mknodat,chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,truncate,ftruncate,utimensat,utime,setxattr,connect,"
    "sendto,sendmsg,kill,tkill,tgkill,mount,sethostname,setdomainname,settimeofday,clock_settime,adjtimex,clock_adjtime,syslog,ioctl"
)
_SEEN = re.compile(r"^\d+ +(?P<call>\w+)\((?P<given>.*)$")
_MARK = re.compile(r'"/mark/(\d+)"')
_HELPERS = {
    "egrep": {"sh", "dash", "grep"},
    "which": {"sh", "dash", "which.debianutils"},
    "fgrep": {"sh", "dash", "grep"},
}
_OWN = re.compile(
    r"^(_|BASH_\w+|PIPESTATUS|OLDPWD|PWD|RANDOM|SECONDS|EPOCH\w+|SRANDOM|LINENO|before|FUNCNAME|line)=|^'|^ |^\t|^\)"
)


def watched(lines: Sequence[str], folder: Path) -> list[Effect]:
    """Runs each by itself in a Bash of its own below `folder`, which is made anew, in no network and without rights."""
    work, out = folder / "work", folder / "out"
    for path in (work, out, work / "d"):
        path.mkdir(parents=True)
    for name in (*FILES[:2], "c.c", "d/c.c", *NAMED):
        (work / name).write_text("a b\nc d\n")
    for name in ("evil", "ls", ".evil"):
        (work / name).write_text("#!/bin/sh\ntouch new\n")
        (work / name).chmod(0o755)
    before = _tree(work)
    (out / "lines.json").write_text(json.dumps(list(lines)))
    (out / "driver.py").write_bytes(Path(__file__).read_bytes())
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/mnt/d", "LC_ALL": "C.UTF-8", **VALUES}
    argv = ["bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev",
            "--proc", "/proc", "--tmpfs", "/tmp", "--bind", str(work), "/mnt", "--bind", str(out), "/media",
            "--chdir", "/mnt",
            "--clearenv", *(word for name, value in environment.items() for word in ("--setenv", name, value)),
            "strace", "-f", "--seccomp-bpf", "-s", "200", "-e", f"trace={_CALLS}", "-e", "signal=none",
            "-o", "/media/seen", "/usr/bin/python3", "-I", "/media/driver.py", "/media"]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr
    effects = [Effect(lines[number], what) for number, what in _seen(out / "seen", lines)]
    effects += [Effect(lines[number], what) for number, what in json.loads((out / "changes.json").read_text())]
    if _tree(work) != before:
        effects.append(Effect("(one of them)", "a file of the folder changed"))
    return effects


def _tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = sorted(folder.rglob("*"))
    return {str(one): (one.lstat().st_mode, one.read_bytes() if one.is_file() else b"") for one in files}


def _seen(path: Path, lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    number, driver = -1, ""
    with path.open(errors="replace") as file:
        for row in file:
            driver = driver or row.split()[0]
            if (mark := _MARK.search(row)) is not None:
                number = int(mark[1])
            found = _SEEN.match(row) if number >= 0 and row.split()[0] != driver else None
            pid = row.split()[0]  # a program whose reader has gone tells itself
            if found is None or found["given"].startswith((f"{pid}, SIGPIPE)", f"{pid}, {pid}, SIGPIPE)")):
                continue
            if what := _effect(found["call"], found["given"], lines[number]):
                yield number, what


def _effect(call: str, given: str, line: str) -> str | None:
    match call:
        case "execve" | "execveat":
            name = given.partition('"')[2].partition('"')[0]
            words = set(re.findall(r"[\w.-]+", line)) | {"bash"}
            words |= {helper for word in words for helper in _HELPERS.get(word, ())}
            known = name.startswith(("/usr/bin/", "/bin/", "/usr/local/bin/", "/usr/sbin/", "/root/"))
            return None if (known and name.rpartition("/")[2] in words) or "ENOENT" in given else f"started {name}"
        case "connect" | "sendto" | "sendmsg":
            return f"{call}({given}" if "AF_INET" in given else None
        case "kill" | "tkill" | "tgkill":
            return None if re.match(r"\d+, 0\)", given) else f"{call}({given}"
        case "ioctl":
            return f"{call}({given}" if "TIOCSTI" in given else None
        case "adjtimex" | "clock_adjtime":
            return None if "modes=0" in given else f"{call}({given}"
        case _:
            return f"{call}({given}"


def _stamps() -> set[tuple[str, int, int, int]]:
    """Of all that can be written to: whatever changes a file changes its ctime."""
    found = set()
    for top in (".", "/tmp", "/dev/shm"):
        for folder, _, names in os.walk(top):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                about = os.lstat(path)
                found.add((path, about.st_ctime_ns, about.st_size, about.st_mode))
    return found


_PATIENCE_S = 2.0
_AROUND = r"""exec 9>&FD FD>&-; { set; alias; shopt; set -o; trap; printf '\0'; } >&9
eval -- "$1" 9>&-
{ set; alias; shopt; set -o; trap; printf '\0'; } >&9"""


def _run(out: Path) -> None:
    """Inside: every line, and what it left of the shell that it was run in."""
    changes, before = [], _stamps()
    for number, line in enumerate(json.loads((out / "lines.json").read_text())):
        with contextlib.suppress(OSError):
            os.rmdir(f"/mark/{number}")  # seen in the trace
        reading, writing = os.pipe()
        argv = [
            "/bin/bash",
            "--norc",
            "--noprofile",
            "-O",
            "extglob",
            "-c",
            _AROUND.replace("FD", str(writing)),
            "bash",
            line,
        ]
        with subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(writing,),
            start_new_session=True,
        ) as process:  # fmt: skip
            os.close(writing)
            ended = os.pidfd_open(process.pid)
            if not select.select([ended], [], [], _PATIENCE_S)[0]:
                os.killpg(process.pid, signal.SIGKILL)
            os.close(ended)
        with os.fdopen(reading, "rb") as file:
            said = file.read().decode(errors="replace").split("\0")
        if len(said) == 3:
            was, now = ({one for one in text.splitlines() if not _OWN.match(one)} for text in said[:2])
            changes += [(number, f"the shell: {one[:200]}") for one in sorted(was ^ now)]
        if (after := _stamps()) != before:
            changes.append((number, f"wrote {sorted(set(after) ^ set(before))}"[:300]))
            before = after
    (out / "changes.json").write_text(json.dumps(changes))


if __name__ == "__main__":
    _run(Path(sys.argv[1]))
