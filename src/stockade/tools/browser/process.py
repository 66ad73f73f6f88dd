"""Chromium as a program inside: how it is started, found and ended."""

from collections.abc import Sequence

from stockade.core.errors import UsageError
from stockade.core.ports import Sandbox

PLACES = ("/usr/lib/chromium/chromium", "/usr/bin/chromium-browser", "/opt/google/chrome/chrome", "/usr/bin/chromium")
"""Debian's own binary first: its wrapper wants /etc, which a sandbox does not have."""
_FIND = 'for place in "$@"; do if [ -x "$place" ]; then echo "$place"; exit 0; fi; done; exit 1'
_START = (
    'place=$(mktemp -d) && exec 3<&0 4>&1 </dev/null 1>&2 && HOME=$place exec "$@" --user-data-dir="$place"'
    ' --proxy-server="${http_proxy:-http://127.0.0.1:9}" about:blank'
)
"""It reads commands from 3 and writes to 4; what it prints goes to standard error. The proxy is the only way out."""
_NOT_WANTED = ("IsolateOrigins", "site-per-process", "Translate", "MediaRouter", "OptimizationHints",
               "AutofillServerCommunication")  # fmt: skip
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # the sandbox is ours: Chromium's own wants namespaces, which are not to be had inside
    "--disable-gpu",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-quic",
    "--deny-permission-prompts",
    "--mute-audio",
    "--password-store=basic",
    "--renderer-process-limit=2",
    "--disable-site-isolation-trials",  # frames of other sites are in the page's own tree; no login is to be kept apart
    f"--disable-features={','.join(_NOT_WANTED)}",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--window-size=1280,1000",
    "--proxy-bypass-list=<-loopback>",  # nothing goes past the proxy, loopback included
)


def command(binary: str) -> list[str]:
    """The program that speaks DevTools on its standard input and output."""
    return ["sh", "-c", _START, "sh", binary, *FLAGS]


async def find(sandbox: Sandbox, places: Sequence[str] = PLACES) -> str:
    """The path of a Chromium inside. UsageError when there is none."""
    found = await sandbox.exec(["sh", "-c", _FIND, "sh", *places], timeout_s=20)
    path = found.stdout.decode(errors="replace").strip()
    if found.exit_code or not path:
        raise UsageError("the browser needs Chromium, which is not in the sandbox", "apt-get install chromium")
    return path
