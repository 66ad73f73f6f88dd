"""Text differences in the form that `git apply` and `patch -p1` read. Pure functions over bytes."""

from difflib import SequenceMatcher

from stockade_sandbox.overlay.safe_fs import decode_path
from stockade_sandbox.results import Change

TEXT_BYTES = 1 << 20
"""The longest file that is compared by lines."""

_SNIFF = 8000
_SEARCH = 4_000_000
"""Old lines times new lines beyond which no shortest difference is sought (a hostile pair would take for ever)."""
_CONTEXT = 3

_Block = tuple[bool, int, int, int, int]
"""Whether the lines are equal, then the range of old ones and the range of new ones."""


def is_binary(data: bytes) -> bool:
    """As git decides: a NUL near the beginning."""
    return b"\0" in data[:_SNIFF]


def _on_newline(data: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _blocks(old: list[bytes], new: list[bytes]) -> list[_Block]:
    """Runs of equal and differing lines, covering both. Bounded time: a pair too large is one differing run."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    old_end, new_end = len(old) - tail, len(new) - tail
    blocks: list[_Block] = [(True, 0, head, 0, head)]
    if (old_end - head) * (new_end - head) > _SEARCH:
        blocks.append((False, head, old_end, head, new_end))
    else:
        middle = SequenceMatcher(None, old[head:old_end], new[head:new_end])
        blocks += [(tag == "equal", a + head, b + head, c + head, d + head) for tag, a, b, c, d in middle.get_opcodes()]
    blocks.append((True, old_end, len(old), new_end, len(new)))
    return [block for block in blocks if block[1] < block[2] or block[3] < block[4]]


def count_lines(old: bytes, new: bytes) -> tuple[int, int]:
    """Lines added and removed."""
    if not old or not new:
        return len(_on_newline(new)), len(_on_newline(old))
    differing = [block for block in _blocks(_on_newline(old), _on_newline(new)) if not block[0]]
    return sum(d - c for _, _, _, c, d in differing), sum(b - a for _, a, b, _, _ in differing)


def _hunks(blocks: list[_Block]) -> list[list[_Block]]:
    """Differing runs with their context; runs closer than twice the context share a hunk."""
    hunks: list[list[_Block]] = []
    hunk: list[_Block] = []
    for at, (equal, a, b, c, d) in enumerate(blocks):
        if not equal:
            hunk.append((equal, a, b, c, d))
            continue
        keep = min(_CONTEXT, b - a)
        if hunk:
            if b - a <= 2 * _CONTEXT and at + 1 < len(blocks):
                hunk.append((True, a, b, c, d))
                continue
            hunks.append([*hunk, (True, a, a + keep, c, c + keep)])
        hunk = [(True, b - keep, b, d - keep, d)] if at + 1 < len(blocks) else []
    return [*hunks, hunk] if any(not block[0] for block in hunk) else hunks


def _range(start: int, end: int) -> str:
    count = end - start
    first = start if count == 0 else start + 1
    return f"{first}" if count == 1 else f"{first},{count}"


def _lines(mark: str, lines: list[bytes]) -> list[str]:
    out = []
    for line in lines:
        text = mark + line.decode("utf-8", "surrogateescape")
        out.append(text if text.endswith("\n") else text + "\n\\ No newline at end of file\n")
    return out


def hunks(old: bytes, new: bytes) -> str:
    """The `@@` parts of a unified diff."""
    before, after = _on_newline(old), _on_newline(new)
    out: list[str] = []
    for hunk in _hunks(_blocks(before, after)):
        out.append(f"@@ -{_range(hunk[0][1], hunk[-1][2])} +{_range(hunk[0][3], hunk[-1][4])} @@\n")
        for equal, a, b, c, d in hunk:
            if equal:
                out += _lines(" ", before[a:b])
            else:
                out += _lines("-", before[a:b]) + _lines("+", after[c:d])
    return "".join(out)


_QUOTED = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def name(side: str, path: str) -> str:
    """`a/path` or `b/path`, quoted as git quotes names that hold quotes, control or non-ASCII bytes."""
    raw = f"{side}/{path}".encode("utf-8", "surrogateescape")
    if all(31 < byte < 127 and byte not in (34, 92) for byte in raw):
        return raw.decode()
    inner = "".join(_QUOTED.get(b) or (chr(b) if 31 < b < 127 else f"\\{b:03o}") for b in raw)
    return f'"{inner}"'


def _file_line(mark: str, label: str) -> str:
    return f"{mark} {label}\t\n" if " " in label and not label.startswith('"') else f"{mark} {label}\n"


def _git_mode(mode: int) -> str:
    return "100755" if mode & 0o100 else "100644"


def _one_side(path: str, mode: str, content: bytes | None, *, added: bool) -> str:
    """A whole file added or deleted; `content` None: too large or binary, only the head is given."""
    a, b = name("a", path), name("b", path)
    head = f"diff --git {a} {b}\n{'new' if added else 'deleted'} file mode {mode}\n"
    if not content:
        return head
    sides = ("/dev/null", b) if added else (a, "/dev/null")
    body = hunks(b"", content) if added else hunks(content, b"")
    return head + _file_line("---", sides[0]) + _file_line("+++", sides[1]) + body


class Side:
    """One side of a change: what kind of entry, and for a file its content (None: not to be shown, see `note`)."""

    def __init__(self, kind: str, mode: int = 0o644, content: bytes | None = b"", note: str = "") -> None:
        self.kind, self.mode, self.content, self.note = kind, mode, content, note

    @property
    def git_mode(self) -> str:
        return "120000" if self.kind == "symlink" else _git_mode(self.mode)


def render(change: Change, before: Side | None, after: Side | None) -> str:
    """The difference of one path. What patch tools have no words for (folders, devices) is a line they pass over."""
    path = decode_path(change.path)
    for side in (before, after):
        if side is not None and side.note:
            return f"{side.note}\n"
    if before and after and before.kind == after.kind == "file":
        return _modified(path, before, after)
    parts = []
    for side, added in ((before, False), (after, True)):
        if side is None:
            continue
        if side.kind in ("file", "symlink"):
            parts.append(_one_side(path, side.git_mode, side.content, added=added))
        else:
            parts.append(f"{side.kind} {name('b' if added else 'a', path)} {'added' if added else 'deleted'}\n")
    if before and after and before.kind == after.kind == "directory":
        return f"directory {name('b', path)} mode {before.mode:04o} -> {after.mode:04o}\n"
    return "".join(parts)


def mode_change(path: str, before: int, after: int) -> str:
    """The head of a difference, with the two modes of a file where they differ."""
    modes = f"old mode 100{before & 0o777:03o}\nnew mode 100{after & 0o777:03o}\n" if before != after else ""
    return f"diff --git {name('a', path)} {name('b', path)}\n{modes}"


def _modified(path: str, before: Side, after: Side) -> str:
    out = mode_change(path, before.mode, after.mode)
    body = hunks(before.content or b"", after.content or b"")
    return out + _file_line("---", name("a", path)) + _file_line("+++", name("b", path)) + body if body else out


__all__ = ["TEXT_BYTES", "Side", "count_lines", "hunks", "is_binary", "mode_change", "name", "render"]
