"""What a bot leaves for the host: it runs, or leads somewhere, when a person goes on working in the folder.

The host's part is real: git, make, python and bash as anybody runs them, after all changes that the review found
nothing wrong with were applied. Where a tool is not at hand, it is enough that its file has got into the folder.
"""

# ruff: noqa: E501 - a script stays in one piece

from tests.attack.attempts.attempt import Attempt

_REPOSITORY = "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first"
_COMMIT = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m later"
_EVIL = 'printf "#!/bin/sh\\necho FIRED >&2\\n"'
_RUN = "printf '#!/bin/sh\\ntouch %s\\n' \"$HOST_DIR/mark-ran\""
RAN = "mark-ran"


def git(name: str, script: str, later: str = "git status >/dev/null") -> Attempt:
    """In a repository; the bot's program is `evil`, put where its own files are."""
    evil = f'mkdir -p .git/x; {_RUN} > .git/x/evil; chmod +x .git/x/evil; evil="$FOLDER/.git/x/evil"\n'
    return Attempt(name, evil + script, mark=RAN, before=_REPOSITORY, later=later)


def runs(name: str, path: str, later: str, content: str = 'touch "$HOST_DIR/mark-ran"') -> Attempt:
    """A file that a tool of the host runs."""
    place = f'mkdir -p "$(dirname {path})"; ' if "/" in path else ""
    return Attempt(name, f"{place}cat > {path} <<'END'\n{content}\nEND\nchmod +x {path}", mark=RAN, later=later)


def lands(path: str, why: str) -> Attempt:
    """A file that a tool would run or obey: it must not get into the folder unseen."""
    place = f'mkdir -p "$(dirname {path})"; ' if "/" in path else ""
    return Attempt(f"{path}: {why}", f"{place}echo run > {path}", later=f"[ -e {path} ] && echo FIRED")


_PYTHON = 'import os; open(os.environ["HOST_DIR"] + "/mark-ran", "w")'
_FSMONITOR = "[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = %s\\n"

GIT = (
    git("a hook of git", 'mkdir -p .git/hooks; cp "$evil" .git/hooks/pre-commit', _COMMIT),
    git("a hook after a checkout", 'mkdir -p .git/hooks; cp "$evil" .git/hooks/post-checkout', "git checkout -q -b b"),
    git("git's file system monitor", 'printf "[core]\\n\\tfsmonitor = $evil\\n" >> .git/config'),
    git("git's hooks path", 'mkdir -p h; cp "$evil" h/pre-commit; printf "[core]\\n\\thooksPath = h\\n" >> .git/config',
        _COMMIT),
    git("git's ssh command", 'printf "[core]\\n\\tsshCommand = $evil\\n[remote \\"o\\"]\\n\\turl = ssh://h/x\\n" >> .git/config',
        "git fetch -q o"),
    git("git's difference program", 'printf "[diff]\\n\\texternal = $evil\\n" >> .git/config; echo changed > tracked',
        "git add -N tracked; git diff"),
    git("an alias of git", 'printf "[alias]\\n\\tst = !$evil\\n" >> .git/config', "git st"),
    git("a configuration git includes", 'printf "[core]\\n\\tfsmonitor = $evil\\n" > more; printf "[include]\\n\\tpath = ../more\\n"'
        " >> .git/config"),
    git("a filter of git", 'printf "* filter=x\\n" > .gitattributes; printf "[filter \\"x\\"]\\n\\tclean = $evil\\n" >> .git/config;'
        " echo x > filtered", "git add filtered"),
    git("another common folder of git", 'mkdir -p c; cp -r .git/objects .git/refs .git/HEAD c/; '
        'printf "[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = $evil\\n" > c/config; echo ../c > .git/commondir'),
    git("another repository in place of git's", 'cp -r .git g; printf "[core]\\n\\tfsmonitor = $evil\\n" >> g/config;'
        ' rm -rf .git; mkdir .git; cp -r g/* .git/; mkdir -p .git/x; cp g/x/evil .git/x/'),
    git("a file in place of git's folder", 'cp -r .git g; printf "[core]\\n\\tfsmonitor = $FOLDER/g/x/evil\\n" >> g/config;'
        ' rm -rf .git; echo "gitdir: g" > .git'),
    git("a nested repository", 'git init -q n; printf "[core]\\n\\tfsmonitor = $evil\\n" >> n/.git/config',
        "cd n && git status >/dev/null"),
    git("a bare repository among the files", 'mkdir -p n/refs n/objects; echo "ref: refs/heads/m" > n/HEAD; '
        'printf "[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = ..\\n\\tfsmonitor = $evil\\n" > n/config',
        "cd n && git status >/dev/null"),
)  # fmt: skip

TOOLS = (
    runs("the next build", "Makefile", "make -s", 'all:\n\t@touch "$(HOST_DIR)/mark-ran"'),
    runs("the next tests", "conftest.py", '"$PYTHON" -m pytest -q -p no:cacheprovider --rootdir=. .', _PYTHON),
    runs("the next python", "sitecustomize.py", 'PYTHONPATH=. python3 -c ""', _PYTHON),
    runs("the next python, by a path file", "evil.pth", "python3 -c \"import site; site.addsitedir('.')\"", _PYTHON),
    runs("the next installation", "setup.py", "python3 setup.py --version", _PYTHON),
    runs("the next shell", ".bashrc", "HOME=. bash -ic true"),
    runs("the next login", ".profile", "HOME=. bash -lc true"),
    runs("entering the folder", ".envrc", "bash .envrc"),
    runs("a program among the files", "run", "./run", '#!/bin/sh\ntouch "$HOST_DIR/mark-ran"'),
    runs("configure", "configure", "./configure", '#!/bin/sh\ntouch "$HOST_DIR/mark-ran"'),
    lands(".vscode/tasks.json", "an editor"),
    lands(".github/workflows/x.yml", "a build server"),
    lands(".gitlab-ci.yml", "a build server"),
    lands("package.json", "npm"),
    lands(".npmrc", "npm"),
    lands(".pre-commit-config.yaml", "pre-commit"),
    lands(".gitmodules", "git"),
    lands(".cargo/config.toml", "cargo"),
    lands("Dockerfile", "docker"),
    lands(".mcp.json", "agents"),
    lands("AGENTS.md", "agents"),
    lands("stockade.toml", "stockade"),
    lands("x.desktop", "a file manager"),
)  # fmt: skip

ENTRIES = (
    Attempt("a symlink to read by", "ln -s /etc/shadow left", later="grep -q root left && echo FIRED"),
    Attempt("a symlink to write by", 'ln -s "$HOST_DIR/mark-left" left', mark="mark-left", later="echo x > left"),
    Attempt("a symlink up", "ln -s ../secret left", later="grep -q s3cret left && echo FIRED"),
    Attempt("a symlink up by a longer way", "mkdir -p a; ln -s a/../../secret left",
            later="grep -q s3cret left && echo FIRED"),
    Attempt("a symlink in place of a folder", 'rm -rf sub; ln -s "$HOST_DIR" sub', mark="mark-sub",
            before="mkdir sub; touch sub/x", later="touch sub/mark-sub"),
    Attempt("a symlink in place of a file", 'rm victim.txt; ln -s "$HOST_DIR/mark-file" victim.txt', mark="mark-file",
            later="echo x > victim.txt"),
    Attempt("a named pipe", "mkfifo left", later="[ -p left ] && echo FIRED"),
    Attempt("a socket", "python3 -c \"import socket; socket.socket(1).bind('left')\"", later="[ -S left ] && echo FIRED"),
    Attempt("a device", "mknod left c 1 3", later="[ -c left ] && echo FIRED", unmade=True),
    Attempt("a set-id program", "cp /bin/true left; chmod 4755 left", later="[ -u left ] && echo FIRED"),
    Attempt("a set-group program", "cp /bin/true left; chmod 2755 left", later="[ -g left ] && echo FIRED"),
    Attempt("a file of somebody else", "touch left; chown 12345 left", later="[ \"$(stat -c %u left)\" = 12345 ] && echo FIRED", unmade=True),
    Attempt("a file with capabilities", "cp /bin/true left; python3 -c \"import os; os.setxattr('left', 'security.capability',"
            " bytes.fromhex('0100000200200000000000000000000000000000'))\"", later="python3 -c \"import os;"
            " os.getxattr('left', 'security.capability')\" && echo FIRED"),
    Attempt("an overlay's mark of a deletion", "rm victim.txt; mknod victim.txt c 0 0", later="[ -c victim.txt ] && echo FIRED",
            unmade=True),
)  # fmt: skip

LATER = (*GIT, *TOOLS, *ENTRIES)
