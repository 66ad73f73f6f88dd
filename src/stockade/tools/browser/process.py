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
_NOT_WANTED = ("IsolateOrigins", "site-per-process", "Translate", "MediaRouter", "OptimizationHints", "HttpsUpgrades",
               "AutofillServerCommunication", "CertificateTransparencyComponentUpdater", "NetworkTimeServiceQuerying",
               "PaintHolding")  # fmt: skip
_OWN_ERRANDS = ("clients2.google.com", "update.googleapis.com", "optimizationguide-pa.googleapis.com",
                "content-autofill.googleapis.com")  # fmt: skip
"""What Chromium asks for by itself. Past the proxy there is no network, so that it does not get it, nor is it noted."""
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # the sandbox is ours: Chromium's own wants namespaces, which are not to be had inside
    "--disable-gpu",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-service-autorun",
    "--disable-back-forward-cache",
    "--disable-background-networking",
    "--disable-backgrounding-occluded-windows",
    "--disable-breakpad",
    "--disable-component-extensions-with-background-pages",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-field-trial-config",
    "--disable-quic",
    "--disable-renderer-backgrounding",
    "--disable-search-engine-choice-screen",
    "--disable-sync",
    "--deny-permission-prompts",
    "--metrics-recording-only",
    "--mute-audio",
    "--password-store=basic",
    "--renderer-process-limit=2",
    "--disable-site-isolation-trials",  # frames of other sites are in the page's own tree; no login is to be kept apart
    f"--disable-features={','.join(_NOT_WANTED)}",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--window-size=1280,1000",
    f"--proxy-bypass-list={';'.join(('<-loopback>', *_OWN_ERRANDS))}",
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
