"""Two sides of an entry and what differs between them: the kind of change, its lines, and a text that `git apply` and
`patch -p1` read. Nothing is read of a folder but by `Side.read`.
"""

import base64
import hashlib
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher

from stockade_sandbox.overlay.safe_fs import LARGE, MODE_BITS, DirTree, Node, decode_path, encode_path
from stockade_sandbox.results import MARK, Change, ChangeKind, EntryKind, Renamed

TEXT_BYTES = 1 << 20
"""The longest file that is compared by lines."""
COUNT_BYTES = 64 << 20
"""What is read in all to count lines; files after that are listed without counts."""

_SNIFF = 8000
Seen = Callable[[bytes], None]
_SEARCH = 4_000_000
"""Old lines times new lines beyond which no shortest difference is sought (a hostile pair would take for ever)."""
_CONTEXT = 3
_MARK = MARK.encode()


@dataclass(frozen=True)
class Side:
    """One side of a difference. `read` gives at most so many bytes of a file; None where they are not to be had, for
    the reason `unseen`. `target` is a symlink's, as the file system spells it.
    """

    kind: EntryKind
    mode: int = 0
    size: int = 0
    target: str | None = None
    read: Callable[[int], bytes | None] = lambda _: None
    unseen: str = "is too large to be shown"

    @classmethod
    def of(cls, tree: DirTree, path: str, node: Node | None) -> "Side | None":
        """What is at `path` of a folder; None where there is nothing."""
        if node is None:
            return None
        return cls(node.kind, node.mode, node.size, node.target, lambda limit: tree.read(path, limit))

    def text(self, path: str) -> bytes | str:
        """What is compared by lines, or the line that is shown instead of it."""
        if self.kind == "symlink":
            return (self.target or "").encode("utf-8", "surrogateescape")
        data = self.read(TEXT_BYTES) if self.size <= TEXT_BYTES else None
        shown, size = _name("", path).replace("/", "", 1), f" ({self.size} bytes)" if self.size else ""
        if data is None:
            return f"File {shown} {self.unseen}{size}"
        return f"Binary file {shown}{size}" if is_binary(data) else data


def kind_of(before: Side | None, after: Side | None, is_same: Callable[[], bool]) -> ChangeKind | None:
    """None where nothing differs. `is_same`: whether two files of one size, or two devices, hold the same."""
    if before is None or after is None:
        return None if before is after else "deleted" if after is None else "added"
    if before.kind != after.kind:
        return "type"
    if after.kind == "directory":
        return "mode" if (before.mode ^ after.mode) & MODE_BITS else None
    if after.kind == "symlink":
        return None if before.target == after.target else "modified"
    if before.size != after.size or not is_same():
        return "modified"
    return "mode" if before.mode != after.mode and after.kind == "file" else None


@dataclass
class Lines:
    """Counts the lines of differences, as long as what may be read for it lasts."""

    left: int = COUNT_BYTES

    def change(self, path: str, kind: ChangeKind, before: Side | None, after: Side | None) -> tuple[Change, bool]:
        """The change, and whether it writes a mark that was not there before."""
        shown = after or before
        assert shown is not None
        binary, added, removed, masked = self._count(before, after) if kind != "mode" else (False, 0, 0, False)
        mode = shown.mode & (MODE_BITS if shown.kind == "directory" else 0o7777)
        target = encode_path(shown.target) if shown.target is not None else None
        return Change(path=encode_path(path), kind=kind, entry=shown.kind, size=after.size if after else 0, mode=mode,
                      target=target, binary=binary, added_lines=added, removed_lines=removed), masked  # fmt: skip

    def _count(self, before: Side | None, after: Side | None) -> tuple[bool, int, int, bool]:
        old, new = self._text(before), self._text(after)
        if is_binary(old) or is_binary(new):
            return True, 0, 0, False
        masked, size = new.count(_MARK) > old.count(_MARK), len(old) + len(new)
        if self.left < size or max(len(old), len(new)) > TEXT_BYTES:
            return False, 0, 0, masked
        self.left -= size
        return False, *count_lines(old, new), masked

    def _text(self, side: Side | None) -> bytes:
        """One byte more than TEXT_BYTES when it is longer; empty for what is no readable file."""
        if side is None or side.kind != "file":
            return b""
        try:
            return side.read(TEXT_BYTES + 1 if self.left > 0 else _SNIFF) or b""
        except PermissionError:
            return b""


def is_binary(data: bytes) -> bool:
    """As git decides: a NUL near the beginning."""
    return b"\0" in data[:_SNIFF]


def _on_newline(data: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


class _Lines(SequenceMatcher[bytes]):
    """Of two texts, in bounded time: a pair too large is one differing run."""

    def __init__(self, old: bytes, new: bytes) -> None:
        self.old, self.new = _on_newline(old), _on_newline(new)
        super().__init__(None, [], [])

    def get_opcodes(self) -> list[tuple[str, int, int, int, int]]:  # type: ignore[override]
        old, new = self.old, self.new
        head = 0
        while head < min(len(old), len(new)) and old[head] == new[head]:
            head += 1
        tail = 0
        while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
            tail += 1
        ends = len(old) - tail, len(new) - tail
        if (ends[0] - head) * (ends[1] - head) > _SEARCH:
            middle = [("replace", 0, ends[0] - head, 0, ends[1] - head)]
        else:
            middle = list(SequenceMatcher(None, old[head : ends[0]], new[head : ends[1]]).get_opcodes())
        blocks = [("equal", 0, head, 0, head)]
        blocks += [(tag, a + head, b + head, c + head, d + head) for tag, a, b, c, d in middle]
        blocks.append(("equal", ends[0], len(old), ends[1], len(new)))
        return [block for block in blocks if block[1] < block[2] or block[3] < block[4]]


def count_lines(old: bytes, new: bytes) -> tuple[int, int]:
    """Lines added and removed."""
    differing = [block for block in _Lines(old, new).get_opcodes() if block[0] != "equal"]
    return sum(d - c for _, _, _, c, d in differing), sum(b - a for _, a, b, _, _ in differing)


@dataclass(frozen=True, slots=True)
class Hunk:
    """A piece of a difference and what is around it. `lines` begin with ` `, `-` or `+` and keep their newline; they
    stand from line `old_at` of the old text, and from `new_at` of the new one, both counted from 0.
    """

    old_at: int
    new_at: int
    lines: tuple[bytes, ...]

    def side(self, without: bytes) -> list[bytes]:
        """Its lines as they are in the old text (`without` b"+"), or in the new one (b"-")."""
        return [line[1:] for line in self.lines if line[:1] != without]

    @property
    def text(self) -> str:
        """As it stands in a unified diff."""
        old, new = len(self.side(b"+")), len(self.side(b"-"))
        head = f"@@ -{_range(self.old_at, self.old_at + old)} +{_range(self.new_at, self.new_at + new)} @@\n"
        return head + "".join(_marked(line) for line in self.lines)

    def split(self) -> "list[Hunk]":
        """One for each run of changed lines in it, each with what is around that."""
        kinds = [line[:1] == b" " for line in self.lines]
        starts = [at for at, same in enumerate(kinds) if not same and (at == 0 or kinds[at - 1])]
        parts = []
        for at in starts:
            end = next((to for to in range(at, len(kinds)) if kinds[to]), len(kinds))
            first = next((to for to in range(at - 1, -1, -1) if not kinds[to]), -1) + 1
            last = next((to for to in range(end, len(kinds)) if not kinds[to]), len(kinds))
            above = self.lines[:first]
            old = sum(line[:1] != b"+" for line in above)
            new = sum(line[:1] != b"-" for line in above)
            parts.append(Hunk(self.old_at + old, self.new_at + new, self.lines[first:last]))
        return parts

    def edited(self, text: bytes) -> "Hunk":
        """The same with these lines, in which `#` begins a remark. ValueError when it does not fit the old text."""
        lines: list[bytes] = []
        for line in _on_newline(text):
            if line[:1] == b"\\" and lines:
                lines[-1] = lines[-1].removesuffix(b"\n")
            elif line[:1] in (b" ", b"-", b"+"):
                lines.append(line)
            elif line == b"\n":  # an editor took the blank away
                lines.append(b" \n")
            elif line[:2] != b"@@" and line[:1] != b"#":
                raise ValueError("a line begins with something else than a blank, - or +")
        hunk = Hunk(self.old_at, self.new_at, tuple(lines))
        if hunk.side(b"+") != self.side(b"+"):
            raise ValueError("lines that begin with a blank or - are not those of the file any more")
        return hunk


def hunks(old: bytes, new: bytes) -> list[Hunk]:
    """The `@@` parts of a unified diff."""
    lines = _Lines(old, new)
    out: list[Hunk] = []
    for hunk in lines.get_grouped_opcodes(_CONTEXT):
        parts: list[bytes] = []
        for tag, a, b, c, d in hunk:
            if tag == "equal":
                parts += [b" " + line for line in lines.old[a:b]]
            else:
                parts += [b"-" + line for line in lines.old[a:b]] + [b"+" + line for line in lines.new[c:d]]
        out.append(Hunk(hunk[0][1], hunk[0][3], tuple(parts)))
    return out


def patched(old: bytes, chosen: Iterable[Hunk]) -> bytes:
    """The old text with these hunks of it, which may share the lines around them. ValueError where one does not fit."""
    lines, out, done = _on_newline(old), list[bytes](), 0
    for hunk in sorted(chosen, key=lambda hunk: hunk.old_at):
        changed = [at for at, line in enumerate(hunk.lines) if line[:1] != b" "]
        if not changed:
            continue
        core = Hunk(hunk.old_at + changed[0], 0, hunk.lines[changed[0] : changed[-1] + 1])
        end = core.old_at + len(core.side(b"+"))
        if core.old_at < done or lines[core.old_at : end] != core.side(b"+"):
            raise ValueError(f"the hunk at line {hunk.old_at + 1} does not fit the text")
        out += lines[done : core.old_at] + core.side(b"-")
        done = end
    return b"".join([*out, *lines[done:]])


def _range(start: int, end: int) -> str:
    count = end - start
    first = start if count == 0 else start + 1
    return f"{first}" if count == 1 else f"{first},{count}"


def _marked(line: bytes) -> str:
    text = line.decode("utf-8", "surrogateescape")
    return text if text.endswith("\n") else text + "\n\\ No newline at end of file\n"


_QUOTED = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def _name(side: str, path: str) -> str:
    """`a/path` or `b/path`, quoted as git quotes names that hold quotes, control or non-ASCII bytes."""
    return _quoted(f"{side}/{path}")


def _quoted(name: str) -> str:
    raw = name.encode("utf-8", "surrogateescape")
    if all(31 < byte < 127 and byte not in (34, 92) for byte in raw):
        return raw.decode()
    inner = "".join(_QUOTED.get(b) or (chr(b) if 31 < b < 127 else f"\\{b:03o}") for b in raw)
    return f'"{inner}"'


def render(
    change: Change, before: Side | None, after: Side | None, renamed: Renamed | None = None, binary: Seen | None = None
) -> str:
    """The difference of one path. What patch tools have no words for (folders, devices) is a line they pass over.

    `binary`: what cannot be compared by lines is in it as git encodes it, each side after `binary` has seen it.
    """
    path = decode_path(change.path)
    if before and after and before.kind == after.kind == "file":
        return _modified(path, before, after, only_mode=change.kind == "mode", renamed=renamed, binary=binary)
    if before and after and before.kind == after.kind == "directory":
        return f"directory {_name('b', path)} mode {before.mode:04o} -> {after.mode:04o}\n"
    parts = []
    for side, added in ((before, False), (after, True)):
        if side is None:
            continue
        if side.kind not in ("file", "symlink"):
            parts.append(f"{side.kind} {_name('b' if added else 'a', path)} {'added' if added else 'deleted'}\n")
        elif not isinstance(text := side.text(path), str):
            parts.append(_one_side(path, side, text, added=added))
        elif encoded := _encoded(None if added else side, side if added else None, binary):
            parts.append(_one_side(path, side, b"", added=added) + encoded)
        else:
            return f"{text}\n"
    return "".join(parts)


def _modified(
    path: str, before: Side, after: Side, *, only_mode: bool, renamed: Renamed | None, binary: Seen | None
) -> str:
    was = decode_path(renamed.old) if renamed else None
    out = f"diff --git {_name('a', was or path)} {_name('b', path)}\n"
    if before.mode != after.mode:
        out += f"old mode 100{before.mode & 0o777:03o}\nnew mode 100{after.mode & 0o777:03o}\n"
    if was is not None and renamed:
        names = f"rename from {_quoted(was)}\nrename to {_quoted(path)}\n"
        out += f"similarity index {renamed.similarity}%\n{names}"
    if only_mode or (renamed and renamed.similarity == 100):
        return out
    old, new = before.text(path), after.text(path)
    if isinstance(old, str) or isinstance(new, str):
        encoded = _encoded(before, after, binary)
        return out + encoded if encoded else f"{old if isinstance(old, str) else new!s}\n"
    body = "".join(hunk.text for hunk in hunks(old, new))
    return (
        out + _file_line("---", _name("a", was or path)) + _file_line("+++", _name("b", path)) + body if body else out
    )


def _encoded(before: Side | None, after: Side | None, binary: Seen | None) -> str:
    """Both directions of a binary patch of git's; empty where that is not wanted, or a side is too large for it."""
    sides = [side.read(LARGE + 1) if side else b"" for side in (before, after)] if binary else []
    if binary is None or any(data is None or len(data) > LARGE for data in sides):
        return ""
    old, new = (data or b"" for data in sides)
    names = []
    for side, data in ((before, old), (after, new)):
        binary(data)
        names.append(hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() if side else "0" * 40)  # git's own name
    return f"index {names[0]}..{names[1]}\nGIT binary patch\n{_literal(new)}{_literal(old)}"


def _literal(data: bytes) -> str:
    packed, out = zlib.compress(data), [f"literal {len(data)}\n"]
    for at in range(0, len(packed), 52):
        piece = packed[at : at + 52]
        length = chr(64 + len(piece)) if len(piece) <= 26 else chr(70 + len(piece))
        out.append(f"{length}{base64.b85encode(piece, pad=True).decode()}\n")
    return "".join([*out, "\n"])


def _one_side(path: str, side: Side, text: bytes, *, added: bool) -> str:
    """A whole file added or deleted."""
    a, b = _name("a", path), _name("b", path)
    mode = "120000" if side.kind == "symlink" else "100755" if side.mode & 0o100 else "100644"
    head = f"diff --git {a} {b}\n{'new' if added else 'deleted'} file mode {mode}\n"
    if not text:
        return head
    sides = ("/dev/null", b) if added else (a, "/dev/null")
    body = "".join(hunk.text for hunk in (hunks(b"", text) if added else hunks(text, b"")))
    return head + _file_line("---", sides[0]) + _file_line("+++", sides[1]) + body


def _file_line(mark: str, label: str) -> str:
    return f"{mark} {label}\t\n" if " " in label and not label.startswith('"') else f"{mark} {label}\n"
