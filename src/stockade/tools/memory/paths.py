"""Paths of the memory as a model writes them: `/memories/notes/todo.md` to its names. Pure."""

from stockade.core.errors import ActionFailed
from stockade.tools.arguments import is_text

ROOT = "/memories"
MAX_NAME_BYTES = 120
MAX_DEPTH = 8

Names = tuple[str, ...]


def parse(path: str) -> Names:
    """Names below the root; none for the root itself. ActionFailed for all that is not plainly inside.

    `notes.md`, `memories/notes.md` and `/memories/notes.md` are the same: small models write all three.
    """
    if not is_text(path) or not path.strip() or not path.isprintable():
        raise ActionFailed(f"the path is empty or has characters that no name has; write {ROOT}/NAME")
    words = [word for word in path.strip().split("/") if word not in ("", ".")]
    if words and f"/{words[0]}" == ROOT:
        words = words[1:]
    elif path.strip().startswith("/") and words:
        raise ActionFailed(f"{path.strip()[:200]} is not in the memory: paths begin with {ROOT}/")
    if ".." in words:
        raise ActionFailed(f"'..' leads out of the memory: write {ROOT}/NAME")
    if len(words) > MAX_DEPTH:
        raise ActionFailed(f"more than {MAX_DEPTH} folders deep")
    for word in words:
        if word.startswith("."):
            raise ActionFailed(f"{word[:80]!r}: names in the memory do not begin with a dot")
        if len(word.encode()) > MAX_NAME_BYTES:
            raise ActionFailed(f"a name longer than {MAX_NAME_BYTES} bytes: {word[:40]}...")
    return tuple(words)


def shown(names: Names) -> str:
    return "/".join((ROOT, *names))
