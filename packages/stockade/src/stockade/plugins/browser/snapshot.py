"""A page's accessibility tree as lines of text: what a person who cannot see it is read, with names to act on.

- heading "Sign up"
- textbox "Name" [e1]: "Ann"
- button "Send" [e2]
- text: All fields are needed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_LINES = 300
MAX_CHARS = 6000
"""Of one look."""
MAX_NAME_CHARS = 160
MAX_TEXT_CHARS = 400
MAX_DEPTH = 12
MAX_OPTIONS = 30
_MAX_NODES = 50_000
_MAX_KEPT = 20_000
ACTED_ON = frozenset({
    "button", "link", "textbox", "searchbox", "combobox", "listbox", "option", "checkbox", "radio", "switch", "slider",
    "spinbutton", "menuitem", "menuitemcheckbox", "menuitemradio", "tab", "treeitem", "DisclosureTriangle", "Date",
    "ColorWell", "InputTime", "DateTime", "PopUpButton",
})  # fmt: skip
_SHOWN = frozenset({
    "heading", "img", "image", "list", "listitem", "table", "row", "cell", "gridcell", "columnheader", "rowheader",
    "dialog", "alertdialog", "alert", "status", "navigation", "main", "banner", "contentinfo", "form", "search",
    "region", "article", "complementary", "group", "Iframe", "code", "blockquote", "progressbar", "separator",
})  # fmt: skip
_NO_LINE_OF_ITS_OWN = frozenset({"row", "list", "listitem", "table", "cell", "gridcell", "group", "region", "form"})
"""Shown where they have a name; their content is shown anyway."""
_STATES = ("checked", "selected", "expanded", "disabled", "required", "pressed", "invalid", "focused")

Node = Mapping[str, Any]


@dataclass(slots=True)
class Snapshot:
    """The whole page. `refs`: the name of each element that can be acted on -> its node in the browser."""

    lines: list[str] = field(default_factory=list)
    refs: dict[str, int] = field(default_factory=dict)

    def shown(self, start: int = 1, find: str = "") -> str:
        """The lines from number `start` on, or those that hold the words of `find`; as many as are shown at once."""
        words = find.lower().split()
        chosen = [
            (number, line)
            for number, line in enumerate(self.lines, 1)
            if number >= start and all(word in line.lower() for word in words)
        ]
        text: list[str] = []
        chars = 0
        for at, (number, line) in enumerate(chosen):
            chars += len(line) + 1
            if at and (chars > MAX_CHARS or at >= MAX_LINES):
                more = f"... {len(chosen) - at} lines more: browser_snapshot with start={number}, or find=WORDS"
                return "\n".join([*text, more])
            text.append(line.lstrip() if words else line)
        return "\n".join(text) or ("(no line holds that)" if words or start > 1 else "(the page is empty)")


def snapshot(frames: Sequence[Sequence[Node]]) -> Snapshot:
    """Of the trees of a page's frames, as Accessibility.getFullAXTree gives them; the page itself first."""
    found = Snapshot()
    for number, nodes in enumerate(frames):
        by_id = {str(node.get("nodeId")): node for node in nodes[:_MAX_NODES] if isinstance(node, dict)}
        roots = [node for node in by_id.values() if str(node.get("parentId")) not in by_id]
        lines = _merged(line for root in roots for line in _lines(root, by_id, 0, ""))
        frame: list[_Line] = [(0, "- frame:", None)] if number else []
        for depth, words, backend in [*frame, *lines][: _MAX_KEPT - len(found.lines)]:
            if backend is not None:
                ref = f"e{len(found.refs) + 1}"
                found.refs[ref] = backend
                words = words.replace("\0", f" [{ref}]")
            found.lines.append("  " * min(depth, MAX_DEPTH) + words.replace("\0", ""))
    return found


_Line = tuple[int, str, int | None]
"""Depth, words with a NUL where the name to act on goes, the node that it stands for."""


def _lines(root: Node, by_id: Mapping[str, Node], depth: int, said: str) -> Iterator[_Line]:
    """Without recursion: a page decides how deep its tree is. `said` is the name that stands above already."""
    stack: list[tuple[Node, int, str]] = [(root, depth, said)]
    seen: set[str] = set()
    while stack:
        node, level, above = stack.pop()
        mark = str(node.get("nodeId"))
        if mark in seen:
            continue
        seen.add(mark)
        role, name = _value(node, "role"), _one_line(_value(node, "name"), MAX_NAME_CHARS)
        below = level
        if node.get("ignored") is not True:
            if role == "StaticText":
                text = _one_line(_value(node, "name"), MAX_TEXT_CHARS)
                if text and text not in above:
                    yield level, f"- text: {text}", None
                continue
            if role == "MenuListPopup":
                yield level, f"- options: {_options(node, by_id)}", None
                continue
            if role in ACTED_ON or (role in _SHOWN and (name or role not in _NO_LINE_OF_ITS_OWN)):
                yield level, _words(node, role, name), _backend(node) if role in ACTED_ON else None
                below, above = level + 1, f"{name}\n{_one_line(_value(node, 'value'), MAX_NAME_CHARS)}"
        children = node.get("childIds")
        known = [by_id[str(child)] for child in children if str(child) in by_id] if isinstance(children, list) else []
        stack.extend((child, below, above) for child in reversed(known))


def _options(node: Node, by_id: Mapping[str, Node]) -> str:
    """The choices of a list that is folded up."""
    waiting, names = [node], list[str]()
    while waiting and len(names) < MAX_OPTIONS:
        one = waiting.pop(0)
        if _value(one, "role") == "option":
            names.append(_one_line(_value(one, "name"), 60))
        children = one.get("childIds")
        waiting += [by_id.get(str(child), {}) for child in children] if isinstance(children, list) else []
    return _one_line(" | ".join(names), MAX_TEXT_CHARS)


def _merged(lines: Iterator[_Line]) -> list[_Line]:
    """Pieces of text beside each other are one."""
    result: list[_Line] = []
    for depth, words, backend in lines:
        last = result[-1] if result else None
        if last is not None and words.startswith("- text: ") and last[1].startswith("- text: ") and last[0] == depth:
            joined = f"{last[1]} {words.removeprefix('- text: ')}"
            if len(joined) <= MAX_TEXT_CHARS:
                result[-1] = (depth, joined, None)
                continue
        result.append((depth, words, backend))
    return result


def _words(node: Node, role: str, name: str) -> str:
    properties = {
        str(one.get("name")): _value(one, "value") for one in node.get("properties") or () if isinstance(one, dict)
    }
    states = [f"({state})" for state in _STATES if properties.get(state) not in (None, "", "false", "False")]
    level = f" {properties['level']}" if role == "heading" and properties.get("level") else ""
    value = _one_line(_value(node, "value"), MAX_NAME_CHARS)
    quoted = f' "{name}"' if name else ""
    return f"- {role}{level}{quoted}\0{''.join(f' {state}' for state in states)}" + (f': "{value}"' if value else "")


def _value(node: Node, key: str) -> str:
    found = node.get(key)
    if isinstance(found, dict):
        found = found.get("value")
    return "" if found is None else str(found)


def _one_line(text: str, limit: int) -> str:
    line = " ".join(text.replace("\0", " ").split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _backend(node: Node) -> int | None:
    found = node.get("backendDOMNodeId")
    return found if isinstance(found, int) else None
