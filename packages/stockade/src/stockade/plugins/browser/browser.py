"""A Chromium inside the sandbox: started when it is first wanted, and again when it has ended; its pages in a pile."""

from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskGroup

from stockade.core.errors import ActionFailed, SandboxFailed
from stockade.core.ports import Programs
from stockade.plugins.browser.devtools import BrowserError, DevTools
from stockade.plugins.browser.tab import Tab

START_S = 60.0
MAX_TABS = 6


@dataclass(slots=True)
class Browser:
    """`run` in a task of its own, as long as a browser may be wanted. The last page that came up is the one in view."""

    programs: Programs
    argv: list[str]
    tabs: list[Tab] = field(default_factory=list)
    words: str = ""
    """Why it is not there."""
    _wanted: anyio.Event = field(default_factory=anyio.Event)
    _ready: anyio.Event = field(default_factory=anyio.Event)
    _tools: DevTools | None = None
    _coming: dict[str, Tab] = field(default_factory=dict)
    _came: anyio.Event = field(default_factory=anyio.Event)
    _group: TaskGroup | None = None
    _had_page: bool = False
    """Whether the first page of this browser came up, which it opens by itself."""
    failed: SandboxFailed | None = None

    async def tab(self) -> Tab:
        """The page in view. BrowserError when there is no browser to be had, SandboxFailed when there is no sandbox."""
        if not self.tabs:
            self.words = ""
            ready = self._ready = anyio.Event()
            self._wanted.set()
            if self._tools is not None and self._had_page and not self._coming:
                await self._tools.call("Target.createTarget", url="about:blank")
            with anyio.move_on_after(START_S):
                await ready.wait()
        if self.failed is not None:
            raise self.failed
        if not self.tabs:
            raise BrowserError(f"the browser does not start: {self.words or 'it takes too long'}", gone=True)
        return self.tabs[-1]

    async def arrived(self, before: Tab) -> Tab:
        """The page in view when all that are opening have come up; at rest, where it is another one than `before`."""
        while self._coming:
            await self._came.wait()
        tab = await self.tab()
        if tab is not before:
            await tab.settle()
        return tab

    async def ended(self) -> None:
        """Returns when a browser that has gone is known to be gone."""
        while self._tools is not None:
            await self._came.wait()

    async def run(self) -> None:
        """Serves until it is cancelled."""
        while True:
            await self._wanted.wait()
            try:
                async with self.programs.program(self.argv) as program:
                    tools = DevTools(program, self._on_event)
                    async with anyio.create_task_group() as group:
                        self._group = group
                        group.start_soon(self._begin, tools)
                        await tools.listen()
                        group.cancel_scope.cancel()
                    self.words = (await program.exit_reason())[-300:]
            except ActionFailed as error:
                self.words = error.message
            except SandboxFailed as error:
                self.failed = error
            self._over()
            if self.failed is not None:
                return

    def _over(self) -> None:
        """The next that asks for a page starts it anew."""
        self.tabs.clear()
        self._coming.clear()
        self._tools, self._group, self._had_page = None, None, False
        self._wanted = anyio.Event()
        self._ready.set()
        self._come()

    async def _begin(self, tools: DevTools) -> None:
        self._tools = tools
        try:
            await tools.call("Browser.setDownloadBehavior", behavior="deny", eventsEnabled=True, timeout_s=START_S)
            await tools.call("Target.setDiscoverTargets", discover=True)
            await tools.call(
                "Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=True, flatten=True,
                filter=[{"type": "page"}],
            )  # fmt: skip
        except BrowserError as error:
            self.words = error.message
            self._ready.set()

    def _on_event(self, method: str, found: dict[str, Any], session: str) -> None:
        if method == "Target.attachedToTarget":
            self._attached(found)
        elif method == "Target.detachedFromTarget":
            self._gone(str(found.get("sessionId")))
        elif method == "Browser.downloadWillBegin":
            self._note(f"the page began a download of {str(found.get('suggestedFilename'))!r}, which was refused")
        elif method == "Page.javascriptDialogOpening":
            self._note(f"the page showed a {found.get('type')} dialog, which was dismissed: {found.get('message')}")
            self._soon("Page.handleJavaScriptDialog", session, accept=found.get("type") in ("alert", "beforeunload"))
        elif method == "Page.fileChooserOpened":
            self._note("the page asked for a file, and got none")
        else:
            for tab in (*self.tabs, *self._coming.values()):
                if tab.session == session:
                    tab.on_event(method, found)

    def _attached(self, found: dict[str, Any]) -> None:
        info, session = found.get("targetInfo"), found.get("sessionId")
        if not isinstance(info, dict) or not isinstance(session, str) or self._tools is None or self._group is None:
            return
        if info.get("type") != "page":
            return
        if len(self.tabs) + len(self._coming) >= MAX_TABS:
            self._note("the page opened more windows than are allowed")
            self._soon("Target.closeTarget", "", targetId=info.get("targetId"))
            return
        self._coming[session] = Tab(self._tools, session, str(info.get("targetId")))
        self._group.start_soon(self._arrive, session)

    async def _arrive(self, session: str) -> None:
        tab = self._coming[session]
        try:
            await tab.prepare()
            if self.tabs:
                tab.note("this is a new window that the page before has opened; browser_back closes it")
            self.tabs.append(tab)
            self._had_page = True
        except BrowserError as error:
            self.words = error.message
        finally:
            self._coming.pop(session, None)
            self._ready.set()
            self._come()

    def _come(self) -> None:
        self._came.set()
        self._came = anyio.Event()

    def _gone(self, session: str) -> None:
        self.tabs = [tab for tab in self.tabs if tab.session != session]
        self._coming.pop(session, None)

    def _note(self, words: str) -> None:
        if self.tabs:
            self.tabs[-1].note(words)

    def _soon(self, method: str, session: str, **parameters: Any) -> None:
        """A command whose answer nobody waits for."""
        tools = self._tools
        if tools is None or self._group is None:
            return

        async def send() -> None:
            try:
                await tools.call(method, session, **parameters)
            except BrowserError:
                return  # the page has gone with its dialog

        self._group.start_soon(send)

    async def back(self) -> bool:
        """In the page's history; from a window that has none, to the one before. False when there is neither."""
        tab = await self.tab()
        if await tab.back():
            return True
        if len(self.tabs) < 2:
            return False
        self.tabs.remove(tab)
        await tab.tools.call("Target.closeTarget", targetId=tab.target)
        await self.tabs[-1].settle()
        return True
