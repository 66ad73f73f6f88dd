"""One page of the browser: what is heard of it, and what can be done to it."""

import json
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from stockade.plugins.browser.devtools import BrowserError, DevTools
from stockade.plugins.browser.snapshot import Snapshot, snapshot

QUIET_S = 0.5
"""Without a request for so long, a page is taken to be ready."""
SETTLE_S = 10.0
"""A page that never rests is looked at after so long."""
NAVIGATE_S = 30.0
MAX_TYPED_CHARS = 20_000
MAX_PICTURE_CHARS = 4 << 20
MAX_READ_CHARS = 6000
MAX_FRAMES = 8
_READ = """(() => {
  const text = document.body ? document.body.innerText : document.documentElement.textContent || '';
  return JSON.stringify([text.length, text.slice(%d, %d)]);
})()"""
_PREPARE = """function(text) {
  if (this instanceof HTMLSelectElement) {
    const wanted = text.trim().toLowerCase();
    const found = [...this.options].find(
      o => o.label.trim().toLowerCase() === wanted || o.value.toLowerCase() === wanted);
    if (!found) return 'options: ' + [...this.options].slice(0, 20).map(o => o.label.trim()).join(', ').slice(0, 400);
    this.value = found.value;
    this.dispatchEvent(new Event('input', {bubbles: true}));
    this.dispatchEvent(new Event('change', {bubbles: true}));
    return 'chosen';
  }
  if (this.disabled || this.readOnly) return 'it cannot be changed';
  this.focus();
  if (this instanceof HTMLInputElement && ['date', 'time', 'month', 'week', 'datetime-local', 'color', 'range']
      .includes(this.type)) {
    this.value = text;
    this.dispatchEvent(new Event('input', {bubbles: true}));
    this.dispatchEvent(new Event('change', {bubbles: true}));
    return this.value ? 'chosen' : 'it takes no such value';
  }
  if (typeof this.select === 'function') { this.select(); return 'type'; }
  if (this.isContentEditable) { getSelection().selectAllChildren(this); return 'type'; }
  return 'it is no field for text';
}"""


_HEARD = ("Page.enable", "Network.enable", "DOM.enable", "Accessibility.enable", "Inspector.enable")


@dataclass(slots=True)
class Tab:
    """`session` is the browser's name for this page's connection. Events change it; `changed` is set by each."""

    tools: DevTools
    session: str
    target: str
    requests: set[str] = field(default_factory=set)
    loading: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    status: int = 0
    crashed: bool = False
    refs: dict[str, int] = field(default_factory=dict)
    changed: anyio.Event = field(default_factory=anyio.Event)

    async def call(self, method: str, timeout_s: float = 20.0, **parameters: Any) -> dict[str, Any]:
        if self.crashed:
            raise BrowserError("the page has crashed: open it again, or another one")
        return await self.tools.call(method, self.session, timeout_s, **parameters)

    async def prepare(self) -> None:
        """Turns on what is heard of this page, then lets it go on.

        All at once: a new window waits, and some of these wait for it. What it does first is heard all the same, since
        the browser takes commands in their order.
        """
        try:
            async with anyio.create_task_group() as group:
                for method in _HEARD:
                    group.start_soon(self.call, method)
                group.start_soon(partial(self.call, "Page.setInterceptFileChooserDialog", enabled=True))
                group.start_soon(self.call, "Runtime.runIfWaitingForDebugger")
        except* BrowserError as group_error:
            raise BrowserError("the page could not be reached") from group_error

    def on_event(self, method: str, found: dict[str, Any]) -> None:
        """An event of this page."""
        match method:
            case "Network.requestWillBeSent":
                self._started(found)
            case "Network.loadingFinished" | "Network.loadingFailed":
                self.requests.discard(str(found.get("requestId")))
            case "Network.responseReceived" if found.get("type") == "Document":
                status = (found.get("response") or {}).get("status")
                self.status = status if isinstance(status, int) else 0
            case "Page.frameStartedLoading":
                self.loading.add(str(found.get("frameId")))
            case "Page.frameStoppedLoading" | "Page.frameDetached":
                self.loading.discard(str(found.get("frameId")))
            case "Inspector.targetCrashed":
                self.crashed = True
            case _:
                return
        self._wake()

    def note(self, words: str) -> None:
        """Something for the bot at the next look; a page that floods it is cut short."""
        if len(self.notes) < 5:
            self.notes.append(words[:300])

    def _started(self, found: dict[str, Any]) -> None:
        # Streams never end, and what is inside the page (data:, blob:) is no request.
        url = str((found.get("request") or {}).get("url", ""))
        if found.get("type") not in ("EventSource", "WebSocket", "Ping") and url.startswith(("http:", "https:")):
            self.requests.add(str(found.get("requestId")))

    def _wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def settle(self) -> None:
        """Returns when the page rests, has crashed, or SETTLE_S are over."""
        with anyio.move_on_after(SETTLE_S):
            while not self.crashed:
                changed = self.changed
                if self.loading or self.requests:
                    await changed.wait()
                    continue
                with anyio.move_on_after(QUIET_S) as quiet:
                    await changed.wait()
                if quiet.cancelled_caught:
                    return
        self.requests.clear()

    async def open(self, url: str) -> None:
        self.crashed, self.status = False, 0
        self.requests.clear()
        self.loading.clear()
        found = await self.call("Page.navigate", NAVIGATE_S, url=url)
        if isinstance(error := found.get("errorText"), str) and error and error != "net::ERR_ABORTED":
            of_the_network = "" if "FILE" in error else "; what the network allows is set by --net"
            raise BrowserError(f"the page could not be opened ({error}){of_the_network}")
        await self.settle()

    async def back(self) -> bool:
        """False when there is nothing to go back to."""
        found = await self.call("Page.getNavigationHistory")
        entries, current = found.get("entries"), found.get("currentIndex")
        if not isinstance(entries, list) or not isinstance(current, int) or current < 1 or current >= len(entries):
            return False
        if str(entries[current - 1].get("url", "")) == "about:blank":
            return False
        await self.call("Page.navigateToHistoryEntry", entryId=entries[current - 1].get("id"))
        await self.settle()
        return True

    async def look(self) -> Snapshot:
        """What is on the page now; its names are those that can be acted on from here."""
        frames = _frames((await self.call("Page.getFrameTree")).get("frameTree"))[:MAX_FRAMES]
        trees = []
        for number, frame in enumerate(frames):
            try:
                nodes = (await self.call("Accessibility.getFullAXTree", frameId=frame)).get("nodes")
            except BrowserError:
                if not number:
                    raise
                continue  # a frame that has just gone
            trees.append(nodes if isinstance(nodes, list) else [])
        found = snapshot(trees)
        self.refs = found.refs
        return found

    async def place(self) -> tuple[str, str]:
        """Its address and its title."""
        found = (await self.tools.call("Target.getTargetInfo", targetId=self.target)).get("targetInfo") or {}
        return str(found.get("url", ""))[:500], " ".join(str(found.get("title", "")).split())[:200]

    async def picture(self) -> str:
        """What is in view, as a JPEG in base64."""
        found = await self.call("Page.captureScreenshot", format="jpeg", quality=70)
        data = found.get("data")
        if not isinstance(data, str) or not data or len(data) > MAX_PICTURE_CHARS:
            raise BrowserError("the browser took no picture, or one that is too large")
        return data

    async def read(self, start: int) -> tuple[str, int]:
        """Its text from a character on, and how long it is, as code of the page cannot change it."""
        tree = (await self.call("Page.getFrameTree")).get("frameTree") or {}
        frame = (tree.get("frame") or {}).get("id")
        world = (await self.call("Page.createIsolatedWorld", frameId=frame)).get("executionContextId")
        code = _READ % (start, start + MAX_READ_CHARS)
        found = await self.call("Runtime.evaluate", expression=code, contextId=world, returnByValue=True)
        length, text = json.loads((found.get("result") or {}).get("value") or '[0, ""]')
        return text, length

    async def click(self, ref: str) -> None:
        node = self._node(ref)
        await self._within_sight(node)
        x, y = await self._middle(node)
        mouse: dict[str, Any] = {"x": x, "y": y, "button": "left", "clickCount": 1}
        await self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        await self.call("Input.dispatchMouseEvent", type="mousePressed", **mouse)
        await self.call("Input.dispatchMouseEvent", type="mouseReleased", **mouse)
        await self.settle()

    async def type(self, ref: str, text: str, *, submit: bool) -> None:
        """In place of what stands there; a choice is chosen by its words."""
        node = self._node(ref)
        await self._within_sight(node)
        made = await self._on(node, _PREPARE, text)
        if made not in ("type", "chosen"):
            raise BrowserError(f"{ref}: {made}")
        if made == "type":
            await self.call("Input.insertText", text=text) if text else await self._key("Delete", 46, "")
        if submit:
            await self._key("Enter", 13, "\r")
        await self.settle()

    async def _key(self, key: str, code: int, text: str) -> None:
        pressed: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **pressed)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **pressed)

    def _node(self, ref: str) -> int:
        found = self.refs.get(ref.strip().strip("[]").removeprefix("ref=").lower())
        if found is None:
            there = f"there are e1 to e{len(self.refs)}" if self.refs else "there is nothing to act on"
            raise BrowserError(f"{ref[:40]!r} is not on the page as it was last shown; {there}")
        return found

    async def _within_sight(self, node: int) -> None:
        try:
            await self.call("DOM.scrollIntoViewIfNeeded", backendNodeId=node)
        except BrowserError as error:
            if error.gone:
                raise
            raise BrowserError("it is not on the page any more, or cannot be seen: look again") from None

    async def _middle(self, node: int) -> tuple[float, float]:
        quads = (await self.call("DOM.getContentQuads", backendNodeId=node)).get("quads") or []
        for quad in quads:
            if isinstance(quad, list) and len(quad) == 8 and all(isinstance(one, int | float) for one in quad):
                return sum(quad[::2]) / 4, sum(quad[1::2]) / 4
        raise BrowserError("it cannot be clicked: it takes no room on the page")

    async def _on(self, node: int, function: str, argument: str) -> str:
        """What a function of ours gives for an element."""
        resolved = (await self.call("DOM.resolveNode", backendNodeId=node)).get("object") or {}
        found = await self.call(
            "Runtime.callFunctionOn", functionDeclaration=function, objectId=resolved.get("objectId"),
            arguments=[{"value": argument}], returnByValue=True, userGesture=True,
        )  # fmt: skip
        return str((found.get("result") or {}).get("value"))


def _frames(tree: Any) -> list[str]:
    """The names of a page's frames, itself first."""
    found: list[str] = []
    waiting = [tree]
    while waiting and len(found) < 4 * MAX_FRAMES:
        one = waiting.pop(0)
        if isinstance(one, dict):
            found.append(str((one.get("frame") or {}).get("id")))
            waiting.extend(one.get("childFrames") or [])
    return found
