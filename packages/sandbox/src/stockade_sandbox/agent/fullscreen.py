"""Programs that need a terminal, refused with the reason before they run: there is none in a sandbox."""

import re
import shlex
from pathlib import PurePosixPath

_EDITORS = {"vim", "vi", "nvim", "view", "nano", "pico", "emacs", "micro", "joe", "mcedit", "ed.vim"}
_SCREENS = {"htop", "btop", "atop", "mc", "tmux", "screen", "ncdu", "nmtui", "aptitude"}
_BATCH_OPTIONS = {
    "vim": ("-es", "-Es", "-e", "-s"),
    "vi": ("-es", "-Es", "-e", "-s"),
    "nvim": ("--headless", "-es", "-Es", "-l"),
    "emacs": ("--batch", "-batch"),
    "top": ("-b", "-bn", "-n"),
    "atop": ("-P", "-r"),
    "tmux": ("-V", "new-session", "kill-server", "ls"),
    "screen": ("-dmS", "-dm", "-ls", "-v"),
}
_INFORMATIVE = ("--version", "--help", "-h", "-V")
_NAMES = _EDITORS | _SCREENS | {"top"}
_MENTIONED = re.compile("|".join(re.escape(name) for name in sorted(_NAMES, key=len)))
_NOT_SIMPLE = re.compile(r"[|&;<>()`\n]|\$\(")


def refuse_fullscreen(command: str) -> str | None:
    """Why `command` is not run, or None. Only a simple command whose first word is such a program is refused."""
    if not _MENTIONED.search(command) or _NOT_SIMPLE.search(command.strip()):
        return None
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return None
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL):
        words = words[1:]
    if not words:
        return None
    name = PurePosixPath(words[0]).name
    if name not in _NAMES:
        return None
    options = [word for word in words[1:] if word.startswith("-") or name == "tmux"]
    harmless = (*_INFORMATIVE, *_BATCH_OPTIONS.get(name, ()))
    if any(option == allowed or option.startswith(allowed + "=") for option in options for allowed in harmless):
        return None
    if name == "top" and any(re.fullmatch(r"-\w*b\w*", option) for option in options):
        return None
    other = "use edit or write actions, sed or a here-document" if name in _EDITORS else "use a program that prints"
    return f"{name}: needs a terminal, and there is none here; {other}\n"
