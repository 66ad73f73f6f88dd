"""What a command wrote that said nothing itself: its small text files, as they are now.

A small model that is told only that nothing was printed does the same again, or ends without knowing what it wrote
(docs/small-models.md). Best effort: where `find` does not know how, there is nothing to tell.
"""

from stockade.core.errors import ActionFailed
from stockade.core.ports import Sandbox

MAX_FILES = 3
MAX_FILE_BYTES = 400
CLOCK_SLACK_S = 0.02
"""The kernel stamps files by a clock that ticks a few milliseconds apart."""
_FIND = f"""
find . -xdev -name .git -prune -o -type f -size -{MAX_FILE_BYTES}c -newermt "@$1" -print 2>/dev/null |
sort | head -n {MAX_FILES} | while IFS= read -r f; do printf '%s now holds:\\n' "${{f#./}}"; cat -- "$f"; echo; done
"""


async def wrote_since(sandbox: Sandbox, since: float) -> str:
    """Files below the shell's folder that changed after `since` (UNIX seconds), each with its text; "" for none."""
    try:
        stamp = f"{since - CLOCK_SLACK_S:.3f}"
        result = await sandbox.exec(["sh", "-c", _FIND, "sh", stamp], timeout_s=2, max_output_bytes=4096)
        text = result.stdout.decode()
    except (ActionFailed, UnicodeDecodeError):
        return ""
    plain = all(char.isprintable() or char in "\n\t" for char in text)
    return text.strip() if result.exit_code == 0 and plain else ""
