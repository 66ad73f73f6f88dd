"""Programs that start other programs: which words of theirs are a program, and which a command line.

Options are those of the usual implementations (coreutils, findutils, sudo, util-linux); an option that is not known
makes the program unknown, so that no rule takes it for harmless.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Words = Sequence[str | None]


@dataclass(frozen=True, slots=True)
class Script:
    """A command line in a word; None when the word cannot be known."""

    text: str | None


Given = tuple[str | None, ...] | Script
"""What is started: a program with its arguments, or a command line."""

_TAKES_VALUE = {
    "sudo": "-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir --chroot",
    "doas": "-u -C",
    "nice": "-n --adjustment",
    "ionice": "-c -n -t --class --classdata",
    "timeout": "-s -k --signal --kill-after",
    "stdbuf": "-i -o -e --input --output --error",
    "time": "-o -f --output --format",
    "env": "-u -C -a --unset --chdir --argv0",
    "xargs": "-a -d -E -I -L -n -P -s --arg-file --delimiter --max-lines --max-args --max-procs --max-chars --replace "
    "--process-slot-var",
    "unshare": "-S -G -R -w --setuid --setgid --root --wd --map-user --map-group",
    "nsenter": "-t -S -G --target --setuid --setgid",
    "watch": "-n --interval -q --equexit",
    "strace": "-e -o -p -s -u -E -P --trace --output",
    "exec": "-a",
}
"""Options whose value is a word of its own."""
_BEFORE: dict[str, int] = {"timeout": 1, "chroot": 1}
"""How many words stand between the options and the program."""
_SHELLS = "sh bash dash ash zsh ksh rbash busybox toybox"
_PLAIN = (
    "sudo doas nice ionice timeout stdbuf time nohup setsid command builtin exec coproc chroot unshare nsenter setpriv "
    "strace catchsegv eatmydata fakeroot unbuffer chrt taskset prlimit"
)
"""Programs that take a program and its arguments behind their options."""
_FIND_EXEC = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


def inner(words: Words) -> Iterator[Given]:
    """The programs and command lines that `words` starts by way of its arguments."""
    if words and words[0] is not None and (found := _STARTS.get(words[0].rpartition("/")[2])) is not None:
        yield from found(words, words[0].rpartition("/")[2])


def _plain(words: Words, name: str) -> Iterator[Given]:
    if name == "command" and any(word in ("-v", "-V") for word in words[1:2]):
        return  # only tells where a program is
    if rest := _after_options(words, name):
        yield rest


def _after_options(words: Words, name: str) -> tuple[str | None, ...]:
    """The program and its arguments; empty when there is none. An unknown word before it makes it unknown."""
    takes_value, place = _TAKES_VALUE.get(name, "").split(), 1
    while place < len(words):
        word = words[place]
        if word is None:
            return (None, *words[place + 1 :])
        if word == "--":
            place += 1
            break
        if not word.startswith("-") or word == "-":
            break
        place += 2 if word in takes_value else 1
    return tuple(words[place + _BEFORE.get(name, 0) :])


def _env(words: Words, name: str) -> Iterator[Given]:
    for place, word in enumerate(words[1:], 1):
        if word in ("-S", "--split-string"):
            yield Script(words[place + 1] if place + 1 < len(words) else None)
            return
        if word is not None and word.startswith(("-S", "--split-string=")):
            yield Script(word.removeprefix("--split-string=").removeprefix("-S"))
            return
    rest = list(_after_options(words, name))
    while rest and rest[0] is not None and "=" in rest[0]:
        rest.pop(0)
    if rest:
        yield tuple(rest)


def _xargs(words: Words, name: str) -> Iterator[Given]:
    """Further arguments come from standard input: one unknown word stands for them."""
    if rest := _after_options(words, name):
        yield (*rest, None)


def _parallel(words: Words, name: str) -> Iterator[Given]:
    """GNU parallel runs whatever its input says."""
    yield (None, *words[1:])


def _shell(words: Words, name: str) -> Iterator[Given]:
    """`-c TEXT`; without it a file or standard input is run, whose content nobody can tell."""
    place = 1
    if name in ("busybox", "toybox"):
        if len(words) > 1:
            yield tuple(words[1:])
        return
    while place < len(words):
        word = words[place]
        if word is None or not word.startswith(("-", "+")) or word == "-":
            break
        if not word.startswith("--") and "c" in word:
            rest = [text for text in words[place + 1 :] if text is None or not text.startswith("-")]
            yield Script(rest[0] if rest else None)
            return
        if word in ("--version", "--help"):
            return
        place += 2 if word in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file") else 1
    yield Script(None)


def _joined(words: Words, name: str) -> Iterator[Given]:
    rest = words[1:] if name == "eval" else _after_options(words, name)
    known = [word for word in rest if word is not None]
    if rest:
        yield Script(" ".join(known) if len(known) == len(rest) else None)


def _trap(words: Words, name: str) -> Iterator[Given]:
    """`trap COMMAND SIGNAL`, `complete -C COMMAND`, `mapfile -C COMMAND`."""
    if name == "trap":
        if len(words) > 2 and words[1] not in ("-p", "-l", "-", "--"):
            yield Script(words[1])
        elif len(words) > 3 and words[1] == "--":
            yield Script(words[2])
        return
    if "-C" in words:
        place = words.index("-C") + 1
        yield Script(words[place] if place < len(words) else None)


def _find(words: Words, name: str) -> Iterator[Given]:
    place = 1
    while place < len(words):
        if words[place] in _FIND_EXEC:
            end = place + 1
            while end < len(words) and words[end] not in (";", "+"):
                end += 1
            given = tuple(None if word is None or "{}" in word else word for word in words[place + 1 : end])
            if given:
                yield given
            place = end
        place += 1


_STARTS: dict[str, Callable[[Words, str], Iterator[Given]]] = {
    **dict.fromkeys(_PLAIN.split(), _plain),
    **dict.fromkeys(_SHELLS.split(), _shell),
    **dict.fromkeys(("eval", "watch"), _joined),
    **dict.fromkeys(("trap", "mapfile", "complete"), _trap),
    "env": _env,
    "find": _find,
    "parallel": _parallel,
    "xargs": _xargs,
}
