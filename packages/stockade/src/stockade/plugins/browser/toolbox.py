"""`browser_open`, `_snapshot`, `_click`, `_type`, `_read`, `_screenshot` and `_back`: a web browser that lives in the
sandbox, and sees its servers and files; the web as far as the run's network goes.

Every call answers with the page as it is then, as an accessibility tree: a model sees what it has done without asking.
What a page says is fenced as text of strangers; nothing that it offers for download is written anywhere.
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any, Self
from urllib.parse import quote, urlsplit

import anyio
from pydantic import AfterValidator, Field

from stockade.core.actions import ToolResult
from stockade.core.errors import ActionFailed, SandboxFailed, UsageError
from stockade.core.messages import Image
from stockade.core.ports import Programs, Sandbox, Toolbox
from stockade.core.text import fenced, is_text
from stockade.core.tool_plan import ToolContext
from stockade.extend import Functions
from stockade.plugins.browser.browser import Browser
from stockade.plugins.browser.devtools import BrowserError, chromium_argv, find_chromium
from stockade.plugins.browser.tab import MAX_READ_CHARS, MAX_TYPED_CHARS, Tab

MAX_URL_CHARS = 2000
_INSIDE = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|\[::1\])([:/]|$)", re.IGNORECASE)
CALL_S = 90.0


def web_address(text: str) -> str:
    """An http, https or file address. One without a scheme is https, or http for a server of the sandbox, or a file
    where it begins with a slash. ValueError for anything else.
    """
    url = text.strip()
    if not url or len(url) > MAX_URL_CHARS or any(char.isspace() or not char.isprintable() for char in url):
        raise ValueError(f"it is empty, longer than {MAX_URL_CHARS} characters, or has blanks in it")
    if url.startswith("/"):
        url = f"file://{quote(url)}"
    if url.lower().startswith("file:///"):
        return url
    if "://" not in url:
        if url.split(":")[0].lower() in ("javascript", "data", "file", "about", "chrome", "view-source", "blob"):
            raise ValueError("only http and https pages can be opened, and files by their whole path")
        url = f"{'http' if _INSIDE.match(url) else 'https'}://{url}"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("this is no address") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise ValueError("only http and https pages can be opened, and files by their whole path")
    if not host:
        raise ValueError("it names no host")
    return url


def _typeable(text: str) -> str:
    if not is_text(text):
        raise ValueError("it has characters that nobody can type")
    return text


Address = Annotated[str, AfterValidator(web_address)]
Ref = Annotated[str, Field(description="the name of an element as the page shows it, like e3")]
Typed = Annotated[str, Field(max_length=MAX_TYPED_CHARS), AfterValidator(_typeable)]
Line = Annotated[int, Field(ge=1, le=1_000_000, description="the line to begin at")]
Words = Annotated[str, Field(max_length=500, description="only lines that hold these words")]
Place = Annotated[int, Field(ge=0, le=100_000_000, description="the character to begin at")]
Enter = Annotated[bool, Field(description="press Enter afterwards")]


class BrowserToolbox(Functions):
    """Implements core.ports.Toolbox. The browser starts with the first call; calls are done one after the other."""

    def __init__(self, sandbox: Sandbox, *, files: bool = False) -> None:
        super().__init__(
            self.open,
            self.snapshot,
            self.click,
            self.type,
            self.read,
            self.screenshot,
            self.back,
            prefix="browser_",
            status="data",
        )
        self._sandbox = sandbox
        self._stack = AsyncExitStack()
        self._browser: Browser | None = None
        self._turn = anyio.Lock()
        self._pictures, self._files = 0, files

    async def __aenter__(self) -> Self:
        if not isinstance(self._sandbox, Programs):
            raise UsageError(f"the browser cannot run in {self._sandbox.backend}", "--sandbox bubblewrap")
        binary = await find_chromium(self._sandbox)
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            self._browser = Browser(self._sandbox, chromium_argv(binary))
            group.start_soon(self._browser.run)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.__aexit__(None, None, None)

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        """See core.ports.Toolbox; CALL_S at most."""
        return await super().call(name, arguments, CALL_S if timeout_s is None else min(timeout_s, CALL_S))

    async def open(self, url: Address) -> str:
        """Open a web page and show what is on it."""
        if url.lower().startswith("file:") and not self._files:  # a page could ask for one, and be told
            raise ActionFailed("files are opened only where the run has no network")
        async with self._in_turn() as browser:
            tab = await browser.tab()
            try:
                await tab.open(url)
            except BrowserError as error:
                if not error.gone:
                    raise
                await browser.ended()  # it was gone before, and nobody had noticed
                tab = await browser.tab()
                await tab.open(url)
            return await _shown(await browser.arrived(tab))

    async def snapshot(self, start: Line = 1, find: Words = "") -> str:
        """Show again what is on the page, with the names of what can be clicked or typed into."""
        async with self._in_turn() as browser:
            tab = await browser.tab()
            await tab.settle()
            return await _shown(await browser.arrived(tab), start, find)

    async def click(self, ref: Ref) -> str:
        """Click an element of the page."""
        async with self._in_turn() as browser:
            tab = await browser.tab()
            await tab.click(ref)
            return await _shown(await browser.arrived(tab))

    async def type(self, ref: Ref, text: Typed, submit: Enter = False) -> str:
        """Type into a field of the page in place of what stands there, or choose from a list by its words."""
        async with self._in_turn() as browser:
            tab = await browser.tab()
            await tab.type(ref, text, submit=submit)
            return await _shown(await browser.arrived(tab))

    async def read(self, start: Place = 0) -> str:
        """The plain text of the page."""
        async with self._in_turn() as browser:
            tab = await browser.tab()
            text, length = await tab.read(start)
            url, _ = await tab.place()
        end = start + len(text)
        rest = f" There is more: start={end}." if end < length and len(text) >= MAX_READ_CHARS else ""
        head = f"Characters {start} to {end} of {length}.{rest}\n"
        return head + fenced(f"{url}\n{text}", "the web page in view")

    async def screenshot(self) -> ToolResult:
        """Take a picture of what is in view."""
        async with self._in_turn() as browser:
            tab = await browser.tab()
            await tab.settle()
            data, (url, _) = await tab.picture(), await tab.place()
            self._pictures += 1
            image = Image(name=f"screenshot {self._pictures}", media_type="image/jpeg", base64=data)
        told = f"{image.name}, {image.kilobytes} kB, is on record."
        text = f"{told}\n{fenced(url, 'the address of the web page in view')}"
        return ToolResult(status="data", text=text, images=(image,))

    async def back(self) -> str:
        """Go back to the page before; closes a window that was opened."""
        async with self._in_turn() as browser:
            if not await browser.back():
                raise ActionFailed("there is no page before this one")
            return await _shown(await browser.arrived(await browser.tab()))

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[Browser]:
        if self._browser is None:
            raise SandboxFailed("the browser was not entered")
        async with self._turn:
            yield self._browser


async def _shown(tab: Tab, start: int = 1, find: str = "") -> str:
    """The page in view, which may be another one than the call began with."""
    found = await tab.look()
    url, title = await tab.place()
    notes, tab.notes = tab.notes, []
    lines = [f"{title or '(no title)'} · {url}", *(f"[{note}]" for note in notes), found.shown(start, find)]
    failed = f"The server answered with status {tab.status}.\n" if tab.status >= 400 else ""
    return failed + fenced("\n".join(lines), "the web page in view")


def browser(context: ToolContext) -> Toolbox:
    """Without a network it has the servers and files of its sandbox."""
    return BrowserToolbox(context.sandbox, files=context.policy.network.mode == "none")
