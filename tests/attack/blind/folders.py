"""Attacks on promises 1 to 6: files of the host, the folder, what is applied and taken back."""

import os
import resource
import signal
import stat

from tests.attack.blind.ground import Bare, Ground, Sealed, tree, until, walk
from tests.attack.blind.table import attack


@attack(1, "links, .. and every /proc/PID/root", "the bytes of a file beside the folder are printed")
def roots(g: Ground) -> list[str]:
    key = g.private / "key"
    (g.work / "link").symlink_to(key)
    (g.work / "up").symlink_to("../private")
    g.own()
    script = """
key = sys.argv[1]
paths = [key, 'link', 'up/key', '../private/key', '../../private/key']
for pid in ['self', 'thread-self', *(p for p in os.listdir('/proc') if p.isdigit())]:
    for way in ('root' + key, 'cwd/../private/key', 'root/newroot' + key, 'root/oldroot' + key):
        paths.append(f'/proc/{pid}/{way}')
    for fd in attempt(os.listdir, f'/proc/{pid}/fd') or []:
        paths += [f'/proc/{pid}/fd/{fd}/..' + key, f'/proc/{pid}/fd/{fd}/../private/key']
for path in paths:
    try:
        if b'TOPSECRET' in os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 99): hit(path.replace(key, '/key'))
    except (OSError, ValueError): pass
"""
    return [h for mode in ("ro", "overlay", "rw") for h in g.run(script, str(key), mode=mode).hits]


@attack(1, "a virtual environment that names a private folder, --toolchain auto", "the key in it is read")
def toolchain(g: Ground) -> list[str]:
    private = g.home / "letters"
    for name in ("bin", "lib", "include"):
        (private / name).mkdir(parents=True)
        (private / name / "key").write_text("TOPSECRET")
    (private / "bin" / "notes").write_text("x")
    for venv in (".venv", "venv", "env"):
        (g.work / venv / "bin").mkdir(parents=True)
        (g.work / venv / "pyvenv.cfg").write_text(f"home = {private}/bin\nbase-prefix = {private}\nversion = 3.11.2\n")
        (g.work / venv / "bin" / "python").symlink_to(private / "bin" / "notes")
    (g.work / "node_modules").mkdir()
    (g.work / "node_modules" / ".bin").symlink_to(private)
    (g.work / ".python-version").write_text(f"../../../letters\n{private}\n")
    (g.work / "rust-toolchain").write_text(f'[toolchain]\npath = "{private}"\n')
    g.own()
    script = """
for name in ('bin', 'lib', 'include'):
    try:
        if 'TOPSECRET' in open(f'{sys.argv[1]}/{name}/key').read(): hit(name)
    except OSError: pass
"""
    return g.run(script, str(private), flags=["--toolchain", "auto"]).hits


@attack(1, "--copy of a folder with links out of it", "a file that a link leads to is read")
def copied(g: Ground) -> list[str]:
    loot = g.base / "project" / "given"
    loot.mkdir()
    (loot / "file").symlink_to(g.private / "key")
    (loot / "folder").symlink_to("../private")
    (loot / "here").mkdir()
    (loot / "here" / "deep").symlink_to("../../private/key")
    g.own()
    script = """
for top in ('/home/agent/given', '/workspace', sys.argv[1]):
    for here, names, files in os.walk(top, followlinks=True):
        for name in files:
            try:
                if 'TOPSECRET' in open(os.path.join(here, name)).read(): hit(name)
            except OSError: pass
"""
    return g.run(script, str(loot), flags=["--copy", f"{loot}:/home/agent/given"], refused=True).hits


WRITES = """
def reopened():
    fd = os.open('f', os.O_RDONLY)
    again = os.open(f'/proc/self/fd/{fd}', os.O_RDWR); os.write(again, b'evil')
def mapped():
    fd = os.open('f', os.O_RDONLY)
    libc.mmap.restype = ctypes.c_void_p
    at = libc.mmap(None, 4096, 3, 1, fd, 0)
    if at not in (None, 2**64 - 1): ctypes.memmove(at, b'evil', 4)
def remounted():
    libc.mount(None, b'/workspace', None, 32 | 4096, None)
    open('f', 'a').write('evil')
def linked(): os.link('f', 'f2')
def timed(): os.utime('f', (1, 1))
def moded(): os.chmod('f', 0o777)
def flagged(): fcntl.ioctl(os.open('f', os.O_RDONLY), 0x40086602, struct.pack('l', 0x80))
def tagged(): os.setxattr('f', 'user.evil', b'1')
def punched():
    fd = os.open('f', os.O_RDWR); libc.fallocate(fd, 3, 0, 2)
def renamed(): os.rename('d', 'e')
def temporary():
    fd = os.open('.', os.O_TMPFILE | os.O_RDWR); os.link(f'/proc/self/fd/{fd}', 'tmp', follow_symlinks=True)
def appended(): open('hard', 'a').write('evil')
def opaque(): os.setxattr('d', 'user.overlay.opaque', b'y'); os.setxattr('d', 'user.overlay.redirect',
    b'/../../private')
def cut(): os.truncate('d/g', 0)
def shared():
    reader = os.open('hard', os.O_RDONLY); view = mmap.mmap(reader, 4, prot=mmap.PROT_READ)
    writer = os.open('hard', os.O_RDWR); mmap.mmap(writer, 4)[0:4] = b'evil'
for way in (reopened, mapped, remounted, linked, timed, moded, flagged, tagged, punched, temporary, appended, shared,
    opaque, cut, renamed):
    attempt(way)
"""


def written(g: Ground, mode: str) -> list[str]:
    (g.work / "d").mkdir()
    (g.work / "f").write_text("good\n")
    (g.work / "d" / "g").write_text("good\n")
    (g.outside / "hard").write_text("good\n")
    (g.work / "hard").hardlink_to(g.outside / "hard")
    g.own()
    before = tree(g.work.parent, times=True)
    g.run(WRITES, mode=mode)
    after = tree(g.work.parent, times=True)
    return sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p))


@attack(2, "fifteen ways to write to a folder given ro", "bytes, modes, times or attributes on the host differ")
def read_only(g: Ground) -> list[str]:
    return written(g, "ro")


@attack(
    2, "the same in an overlay, with a file linked outside too", "bytes, modes, times or attributes on the host differ"
)
def overlay(g: Ground) -> list[str]:
    return written(g, "overlay")


@attack(
    2, "a look at the changes runs git with the bot's own settings", "a program of the bot left its mark on the host"
)
def looked_at(g: Ground) -> list[str]:
    marker = g.base / "home" / "ran"
    (g.work / "a.txt").write_text("a\n")
    g.own()
    g.plain("git", "init", "-q")
    g.plain("git", "add", ".")
    g.bot(
        f'printf \'[core]\\n\\tfsmonitor = "touch {marker};false"\\n[diff "evil"]\\n\\ttextconv = touch {marker};cat\\n'
        f"\\tcommand = touch {marker}\\n[core]\\n\\tpager = touch {marker}\\n' >> .git/config",
        "echo '* diff=evil filter=evil' > .gitattributes",
        "echo b >> a.txt",
    )
    if isinstance(g, Bare):
        g.apply()
    g.look()
    return [str(marker)] if marker.exists() else []


@attack(3, "a folder becomes a link to elsewhere between the look and the apply", "files elsewhere are changed")
def swapped_before_apply(g: Ground) -> list[str]:
    for folder in (g.work / "sub", g.outside):
        folder.mkdir(exist_ok=True)
        (folder / "file").write_text("good\n")
        (folder / "gone").write_text("good\n")
    g.own()
    g.bot("echo evil > sub/file; echo evil > sub/new; rm sub/gone; mkdir sub/deep; echo evil > sub/deep/x")
    g.look()
    before = tree(g.outside)
    (g.work / "sub").rename(g.base / "aside")
    (g.work / "sub").symlink_to(g.outside)
    for flags in ([], ["--force", "--flagged"]):
        g.apply(*flags)
    after = tree(g.outside)
    return sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p))


MANY = 1500


@attack(
    3, "kill -9 in the middle of an apply, then apply or undo again", "the folder is neither as before nor as reviewed"
)
def killed_apply(g: Ground) -> list[str]:
    (g.work / "old").write_text("old")
    g.own()
    got: list[str] = []
    middles = 0
    g.bot(f"i=0; while [ $i -lt {MANY} ]; do echo $i > n$i; i=$((i+1)); done; echo new > old")

    def count() -> int:
        return sum(1 for p in g.work.iterdir() if p.name.startswith("n"))

    for again in ("apply", "undo"):
        if isinstance(g, Sealed):
            process = g.popen([*g.stockade(), "apply"])
        else:
            assert isinstance(g, Bare)
            process = g.popen(["sh", "-c", g.waiting[0]])
        assert until(lambda: count() > 20)
        os.killpg(process.pid, signal.SIGKILL)
        g.finish(process)
        middles += 0 < count() < MANY
        if isinstance(g, Sealed):
            g.cli(again)
        n, text = count(), (g.work / "old").read_text().strip()
        if (n, text) not in ((0, "old"), (MANY, "new")):
            got.append(f"{again}: {n} of {MANY} files, {text}")
        if again == "apply" and isinstance(g, Sealed):
            g.cli("undo")
    assert middles, "never killed in the middle"
    return got


@attack(3, "an apply that runs out of room in the middle", "the folder is neither as before nor as reviewed")
def no_room(g: Ground) -> list[str]:
    (g.work / "a").write_text("old\n")
    (g.work / "m").write_text("old\n")
    g.own()
    before = tree(g.work)
    g.bot("echo new > a; head -c 12000000 /dev/zero > m; echo new > z")

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8_000_000, 8_000_000))

    g.apply(first=small)
    after = tree(g.work)
    sizes = {p.name: p.stat().st_size for p in g.work.iterdir()}
    whole = sizes == {"a": 4, "m": 12_000_000, "z": 4}
    return [] if after == before or whole else [str(sizes)]


@attack(
    4,
    "undo of files, folders and links that became each other, with odd modes and names",
    "the folder is not as before",
)
def shapes(g: Ground) -> list[str]:
    w = g.work
    for name in ("file", "sub/file", "was-file", "locked/inner", "two", "target"):
        (w / name).parent.mkdir(exist_ok=True)
        (w / name).write_text(f"{name}\n")
    (w / os.fsdecode(b"odd-\xff\n\x1b[2J")).write_text("odd")
    (w / "empty").mkdir(mode=0o700)
    (w / "sticky").mkdir()
    (w / "sticky").chmod(0o1777)
    (w / "file").chmod(0o604)
    (w / "link").symlink_to("target")
    (w / "dirlink").symlink_to("sub")
    (w / "locked").chmod(0o500)
    (w / "two2").hardlink_to(w / "two")
    g.own()
    before = tree(w)
    g.bot(
        "rm -r empty; chmod 755 sticky; chmod 700 locked; rm locked/inner; chmod 777 file; echo x > file",
        "rm was-file; mkdir was-file; echo x > was-file/in; rm -r sub; echo x > sub",
        "rm link; mkdir link; rm dirlink; ln -s target dirlink; rm -f odd*; mv two three; echo y >> two2",
        "mkdir -p a/b/c; chmod 0 a/b/c; touch target; mv target elsewhere; ln -s elsewhere target",
    )
    g.apply("--flagged")
    assert tree(w) != before
    g.undo()
    after = tree(w)
    return sorted(
        f"{p}: {before.get(p)} {after.get(p)}" for p in before.keys() | after.keys() if before.get(p) != after.get(p)
    )


@attack(4, "undo after the user edited, re-made and added", "the user's bytes are lost, or the rest does not come back")
def edited(g: Ground) -> list[str]:
    for name in ("plain", "edited", "removed", "moded"):
        (g.work / name).write_text("before\n")
    g.own()
    g.bot(
        "echo bot > plain; echo bot > edited; rm removed; mkdir new; echo bot > new/file",
        "echo bot > moded; ln -s plain l",
    )
    g.apply("--flagged")
    mine = {"edited": "mine\n", "removed": "mine again\n", "new/mine": "mine\n"}
    for name, text in mine.items():
        (g.work / name).write_text(text)
    (g.work / "l").unlink()
    (g.work / "l").symlink_to("edited")
    g.own()
    g.undo()
    got = [n for n, text in mine.items() if not (g.work / n).is_file() or (g.work / n).read_text() != text]
    got += [n for n in ("plain", "moded") if (g.work / n).read_text() != "before\n"]
    got += ["new/file"] if (g.work / "new" / "file").exists() else []
    return got + (["l"] if not (g.work / "l").is_symlink() or os.readlink(g.work / "l") != "edited" else [])


@attack(4, "undo through a folder that became a link to elsewhere", "files elsewhere are changed or removed")
def swapped_before_undo(g: Ground) -> list[str]:
    (g.work / "sub").mkdir()
    (g.work / "sub" / "file").write_text("good\n")
    g.own()
    g.bot("echo bot > sub/file; echo bot > sub/new")
    g.apply()
    for name in ("file", "new"):
        (g.outside / name).write_text("bot\n")
    g.own()
    before = tree(g.outside)
    (g.work / "sub").rename(g.base / "aside")
    (g.work / "sub").symlink_to(g.outside)
    for flags in ([], ["--force"]):
        g.undo(*flags)
    after = tree(g.outside)
    return sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p))


def leads_out(g: Ground) -> list[str]:
    inside = os.path.realpath(g.work)
    return [
        f"{p.relative_to(g.work)} -> {os.readlink(p)}"
        for p in walk(g.work)
        if p.is_symlink() and not os.path.realpath(p).startswith(inside + "/") and os.path.realpath(p) != inside
    ]


@attack(
    5, "links that lead inside until the next run moves the ground under them", "a link in the folder leads out of it"
)
def two_step_links(g: Ground) -> list[str]:
    (g.work / "a/b/c").mkdir(parents=True)
    (g.work / "a/b/c/keep").write_text("x")
    (g.work / "deep").mkdir()
    (g.work / "deep/n").symlink_to("../private/key")
    g.own()
    g.bot("ln -s a/b/c/../../../private/key L; ln -s ../../../private/key a/b/c/M; ln -s /workspace/../private P")
    g.apply("--flagged")
    g.bot("rm -r a/b/c; ln -s . a/b/c; mv deep/n n; ln -s /proc/self/cwd/../private Q")
    g.apply("--flagged", "--force")
    return leads_out(g)


@attack(
    5,
    "pipes, sockets, set-id bits and the like, changes of mode alone among them",
    "one of them is in the folder on the host",
)
def special(g: Ground) -> list[str]:
    (g.work / "tool").write_text("#!/bin/sh\n")
    (g.work / "dir").mkdir()
    (g.work / "old").write_text("x")
    g.own()
    g.bot(
        "mkfifo pipe; rm old; mkfifo old",
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\"",
        "chmod u+s tool; chmod g+s dir; mkdir s; chmod 2777 s; cp /bin/true t; chmod 6755 t; ln t t2; mknod z c 0 0",
        "cp t dir/inner; chmod 4711 dir/inner; mv tool renamed",
    )
    g.apply("--flagged", "--force")
    kinds = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}
    got = []
    for path in walk(g.work):
        mode = path.lstat().st_mode
        if stat.S_IFMT(mode) in kinds or (mode & 0o6000 and not path.is_symlink()):
            got.append(f"{path.relative_to(g.work)} {oct(mode)}")
    return got


@attack(5, "the bot's bytes in a set-id program that the user had", "a set-id file with the bot's bytes")
def own_set_id(g: Ground) -> list[str]:
    names = ("inplace", "replaced", "longer")
    for name in names:
        (g.work / name).write_text("#!/bin/sh\necho good\n")
    g.own()
    for name in names:
        (g.work / name).chmod(0o6755)
    g.bot(
        "echo evil > inplace; chmod 6755 inplace",
        "echo evil > x; mv x replaced; chmod 755 replaced",
        "printf evil >> longer; chmod u+s longer",
    )
    g.apply("--flagged", "--force", keep_modes=True)
    files = [g.work / n for n in names]
    return [f.name for f in files if f.stat().st_mode & 0o6000 and "evil" in f.read_text()]


@attack(
    6,
    "git repositories without the name .git, and .git as a file",
    "the user's `git status` there runs the bot's program",
)
def hidden_git(g: Ground) -> list[str]:
    marker = g.home / "ran"
    g.own()
    bare = "mkdir -p {0}/objects {0}/refs; echo 'ref: refs/heads/main' > {0}/HEAD; "
    bare += "printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n"
    bare += '\\tworktree = {1}\\n\\tfsmonitor = "touch %s;false"\\n\' '
    bare += f"'{marker}' > {{0}}/config; "
    g.bot(
        bare.format("docs", ".."),
        bare.format("data/store", "../../app")
        + "mkdir -p app; echo 'gitdir: ../data/store' > app/.git; echo x > app/x",
    )
    g.apply()
    got = []
    for folder in ("docs", "app"):
        if (g.work / folder).is_dir():
            g.plain("git", "status", cwd=g.work / folder)
            g.plain("git", "--git-dir=.", "status", cwd=g.work / folder)
            if marker.exists():
                got.append(folder)
                marker.unlink()
    return got


PROJECTS = """.vscode/tasks.json .vscode/settings.json app.code-workspace .idea/workspace.xml .nvim.lua .nvimrc .exrc
.vimrc
.dir-locals.el .envrc .devcontainer/devcontainer.json .devcontainer.json .zed/settings.json .helix/languages.toml
.cursor/mcp.json
.mcp.json .claude/settings.json .gemini/settings.json .project sub/.vscode/tasks.json .vscode/mcp.json .pdbrc
.gdbinit .Rprofile
.lldbinit .irbrc sitecustomize.py venv/lib/python3/site-packages/a.pth conftest.py .cargo/config.toml .npmrc
.yarnrc.yml .bazelrc
.mvn/extensions.xml .mvn/jvm.config Directory.Build.props build.rs .pre-commit-config.yaml .husky/pre-commit
.github/workflows/x.yml
GNUmakefile gradlew gradle/wrapper/gradle-wrapper.properties settings.gradle.kts .mise.toml flake.nix CMakePresets.json
.sqliterc .inputrc .tmux.conf .screenrc .bash_login .profile .zshenv lefthook.yml .lua-format/../.luarc.json
.pnpmfile.cjs .pnp.cjs
.ocamlinit .ghci .julia/config/startup.jl .octaverc .clangd .jj/repo/config.toml .hg/hgrc .svn/wc.db .stockade.toml
stockade.toml
.venv/bin/bwrap .venv/bin/git node_modules/.bin/eslint usercustomize.py .rspec Rakefile .pryrc composer.json .swcrc
.babelrc.js
babel.config.js vite.config.ts eslint.config.mjs postcss.config.js tox.ini noxfile.py setup.py pyproject.toml
package.json"""


@attack(6, "ninety project files of editors, shells, debuggers, builds", "one of them is applied without a word")
def projects(g: Ground) -> list[str]:
    names = [os.path.normpath(n) for n in PROJECTS.split()]
    g.own()
    g.bot("; ".join(f"mkdir -p '{os.path.dirname(n) or '.'}'; echo x > '{n}'" for n in names))
    g.apply()
    return [n for n in names if (g.work / n).exists()]


@attack(
    6,
    "programs that the user's own git settings name: hooks elsewhere, filters, includes",
    "`git commit` runs the bot's program",
)
def named_by_git(g: Ground) -> list[str]:
    marker = g.home / "ran"
    (g.work / "tools/hooks").mkdir(parents=True)
    (g.work / "tools/clean").write_text("#!/bin/sh\ncat\n")
    (g.work / "tools/clean").chmod(0o755)
    (g.work / "gitinc").write_text("[user]\n\tname = a\n\temail = a@b\n")
    (g.work / "a.txt").write_text("a\n")
    g.own()
    g.plain("git", "init", "-q")
    for key, value in (
        ("core.hooksPath", "tools/hooks"),
        ("filter.fmt.clean", "tools/clean"),
        ("include.path", "../gitinc"),
    ):
        g.plain("git", "config", key, value)
    mark = f"printf '#!/bin/sh\\necho %s >> {marker}\\ncat\\n' "
    g.bot(
        mark + "filter > tools/clean; echo '*.txt filter=fmt' > .gitattributes; echo b > a.txt",
        mark + "hook > tools/hooks/pre-commit; chmod +x tools/hooks/pre-commit",
        f"printf '[user]\\n\\tname = a\\n\\temail = a@b\\n"
        f'[core]\\n\\tfsmonitor = "echo include >> {marker};false"\\n\' > gitinc',
    )
    g.apply()
    g.plain("git", "add", ".")
    g.plain("git", "commit", "-qm", "x", "--allow-empty")
    return sorted(set(marker.read_text().split())) if marker.exists() else []
