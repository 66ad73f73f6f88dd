"""`browser_open`, `_snapshot`, `_click`, `_type`, `_read` and `_back`: a web browser that lives in the sandbox.

Every call answers with the page as it is then, as an accessibility tree: a model sees what it has done without asking.
What a page says is fenced as text of strangers; nothing that it offers for download is written anywhere.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import anyio
from pydantic import Field, field_validator

from stockade.core.actions import ToolResult
from stockade.core.errors import ActionFailed, SandboxFailed, UsageError
from stockade.core.ports import Programs, Sandbox, Toolbox
from stockade.core.text import fenced, is_text
from stockade.core.tool_plan import ToolContext
from stockade.core.toolbox import Arguments, read
from stockade.core.tools import ToolSpec
from stockade.plugins.browser.browser import Browser
from stockade.plugins.browser.devtools import BrowserError, chromium_argv, find_chromium
from stockade.plugins.browser.tab import MAX_READ_CHARS, MAX_TYPED_CHARS, Tab

MAX_URL_CHARS = 2000
CALL_S = 90.0
_REF = {"type": "string", "description": "the name of an element as the page shows it, like e3"}


def web_address(text: str) -> str:
    """An http or https address; one without a scheme is https. ValueError for anything else, local files included."""
    url = text.strip()
    if not url or len(url) > MAX_URL_CHARS or any(char.isspace() or not char.isprintable() for char in url):
        raise ValueError(f"it is empty, longer than {MAX_URL_CHARS} characters, or has blanks in it")
    if "://" not in url:
        if url.split(":")[0].lower() in ("javascript", "data", "file", "about", "chrome", "view-source", "blob"):
            raise ValueError("only http and https pages can be opened")
        url = f"https://{url}"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("this is no address") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise ValueError("only http and https pages can be opened")
    if not host:
        raise ValueError("it names no host")
    return url


def _spec(name: str, about: str, required: tuple[str, ...] = (), **properties: dict[str, Any]) -> ToolSpec:
    parameters = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return ToolSpec(name=f"browser_{name}", description=about, parameters=parameters)


SPECS = (
    _spec("open", "Open a web page and show what is on it.", ("url",), url={"type": "string"}),
    _spec(
        "snapshot",
        "Show again what is on the page, with the names of what can be clicked or typed into.",
        start={"type": "integer", "description": "the line to begin at"},
        find={"type": "string", "description": "only lines that hold these words"},
    ),
    _spec("click", "Click an element of the page.", ("ref",), ref=_REF),
    _spec(
        "type",
        "Type into a field of the page in place of what stands there, or choose from a list by its words.",
        ("ref", "text"),
        ref=_REF,
        text={"type": "string"},
        submit={"type": "boolean", "description": "press Enter afterwards"},
    ),
    _spec(
        "read",
        "The plain text of the page.",
        start={"type": "integer", "description": "the character to begin at"},
    ),
    _spec("back", "Go back to the page before; closes a window that was opened."),
)


class _Open(Arguments):
    url: str

    @field_validator("url")
    @classmethod
    def _web(cls, url: str) -> str:
        return web_address(url)


class _Look(Arguments):
    start: int = Field(default=1, ge=1, le=1_000_000)
    find: str = Field(default="", max_length=500)


class _Click(Arguments):
    ref: str


class _Type(Arguments):
    ref: str
    text: str = Field(max_length=MAX_TYPED_CHARS)
    submit: bool = False

    @field_validator("text")
    @classmethod
    def _typeable(cls, text: str) -> str:
        if not is_text(text):
            raise ValueError("it has characters that nobody can type")
        return text


class _Read(Arguments):
    start: int = Field(default=0, ge=0, le=100_000_000)


_KINDS: Mapping[str, type[Arguments]] = {
    "open": _Open, "snapshot": _Look, "click": _Click, "type": _Type, "read": _Read, "back": Arguments,
}  # fmt: skip


class BrowserToolbox:
    """Implements core.ports.Toolbox. The browser starts with the first call; calls are done one after the other."""

    specs: tuple[ToolSpec, ...] = SPECS

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._stack = AsyncExitStack()
        self._browser: Browser | None = None
        self._turn = anyio.Lock()

    async def __aenter__(self) -> Self:
        if not isinstance(self._sandbox, Programs):
            raise UsageError(f"the browser cannot run in {self._sandbox.backend}", "--sandbox bubblewrap")
        binary = await find_chromium(self._sandbox)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._sandbox.carried())
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            self._browser = Browser(self._sandbox, chromium_argv(binary))
            group.start_soon(self._browser.run)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(None, None, None)

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        if name not in {spec.name for spec in SPECS}:
            raise KeyError(name)
        limit = CALL_S if timeout_s is None else min(timeout_s, CALL_S)
        try:
            with anyio.fail_after(limit):
                async with self._turn:
                    return ToolResult(status="data", text=await self._do(name.removeprefix("browser_"), arguments))
        except (ActionFailed, BrowserError) as error:
            return ToolResult(status="error", text=error.message)
        except TimeoutError:
            return ToolResult(status="error", text=f"this takes longer than {limit:g} s")

    async def _do(self, what: str, arguments: Mapping[str, Any]) -> str:
        browser = self._browser
        if browser is None:
            raise SandboxFailed("the browser was not entered")
        wanted = read(_KINDS[what], arguments)
        tab = await browser.tab()
        match wanted:
            case _Open():
                try:
                    await tab.open(wanted.url)
                except BrowserError as error:
                    if not error.gone:
                        raise
                    await browser.ended()  # it was gone before, and nobody had noticed
                    tab = await browser.tab()
                    await tab.open(wanted.url)
            case _Click():
                await tab.click(wanted.ref)
            case _Type():
                await tab.type(wanted.ref, wanted.text, submit=wanted.submit)
            case _Read():
                return await self._text(tab, wanted.start)
            case _ if what == "back":
                if not await browser.back():
                    raise ActionFailed("there is no page before this one")
                tab = await browser.tab()
            case _:
                await tab.settle()
        look = wanted if isinstance(wanted, _Look) else _Look()
        return await self._shown(await browser.arrived(tab), look)

    async def _shown(self, tab: Tab, look: _Look) -> str:
        """The page in view, which may be another one than the call began with."""
        found = await tab.look()
        url, title = await tab.place()
        notes, tab.notes = tab.notes, []
        lines = [f"{title or '(no title)'} · {url}", *(f"[{note}]" for note in notes)]
        lines.append(found.shown(look.start, look.find))
        failed = f"The server answered with status {tab.status}.\n" if tab.status >= 400 else ""
        return failed + fenced("\n".join(lines), "the web page in view")

    async def _text(self, tab: Tab, start: int) -> str:
        text, length = await tab.read(start)
        url, _ = await tab.place()
        end = start + len(text)
        rest = f" There is more: start={end}." if end < length and len(text) >= MAX_READ_CHARS else ""
        return f"Characters {start} to {end} of {length}.{rest}\n" + fenced(f"{url}\n{text}", "the web page in view")


def browser(context: ToolContext) -> Toolbox:
    """UsageError when the run has no network: a browser without one is of no use."""
    if context.policy.network.mode == "none":
        raise UsageError("the browser has no network", "--net allow=HOST,... or --net open")
    return BrowserToolbox(context.sandbox)
