"""What an action wrote: what is wrong in the syntax of its files, and small ones as they are now.

A small model that is told only that nothing was printed does the same again, or ends without knowing what it wrote
(docs/small-models.md). Best effort: where `find` does not know how, there is nothing to tell.
"""

from stockade.core.errors import ActionFailed
from stockade.core.ports import Sandbox

MAX_FILES = 3
MAX_FILE_BYTES = 400
FIRST_LINES = 3
MAX_LINE_CHARS = 120
CLOCK_SLACK_S = 0.012
"""The kernel stamps files by a clock that ticks a few milliseconds apart."""
_PARSE = 'import ast, sys; ast.parse(open(sys.argv[1], "rb").read(), sys.argv[1])'
_FIND = f"""
pairs() {{
  for pair in do/done if/fi case/esac; do
    opened=$(grep -ow "${{pair%/*}}" -- "$1" | wc -l) closed=$(grep -ow "${{pair#*/}}" -- "$1" | wc -l)
    [ "$opened" -eq "$closed" ] || echo "It has $opened ${{pair%/*}} and $closed ${{pair#*/}}."
  done
}}
find . -xdev -name .git -prune -o -type f -newermt "@$1" -print 2>/dev/null | sort | head -n {MAX_FILES} |
while IFS= read -r f; do
  wrong=
  case $f in
    *.py) ! command -v python3 >/dev/null || wrong=$(python3 -c '{_PARSE}' "$f" 2>&1) ;;
    *.sh) ! command -v bash >/dev/null || wrong=$(bash -n -- "$f" 2>&1 || {{ pairs "$f"; false; }}) ;;
    *.json) ! command -v python3 >/dev/null || wrong=$(python3 -m json.tool -- "$f" 2>&1 >/dev/null) ;;
  esac || printf '%s has a syntax error:\\n%s\\n' "${{f#./}}" "$(printf '%s' "$wrong" | tail -n 4 | cut -c -200)"
  if [ ! -s "$f" ] || ! LC_ALL=C grep -qa '[^[:space:]]' -- "$f"; then
    [ "$2" != all ] || printf '%s is empty.\\n' "${{f#./}}"
  elif [ "$2" = all ] && [ "$(wc -c < "$f")" -le {MAX_FILE_BYTES} ]; then
    printf '%s now holds:\\n' "${{f#./}}"; cat -- "$f"; echo
  elif [ "$2" = all ] && grep -Iq . -- "$f"; then
    printf '%s now has %d lines and begins with:\\n' "${{f#./}}" "$(wc -l < "$f")"
    head -n {FIRST_LINES} -- "$f" | cut -c -{MAX_LINE_CHARS}
  fi
done
"""


async def wrote_since(sandbox: Sandbox, since: float, *, contents: bool) -> str:
    """Of the files below the shell's folder that changed after `since` (UNIX seconds) what is wrong in their syntax,
    and with `contents` their text, or how it begins where it is long. "" for nothing to tell.
    """
    stamp = f"{since - CLOCK_SLACK_S:.3f}"
    argv = ["sh", "-c", _FIND, "sh", stamp, "all" if contents else "wrong"]
    try:
        result = await sandbox.exec(argv, timeout_s=5, max_output_bytes=4096)
        text = result.stdout.decode()
    except (ActionFailed, UnicodeDecodeError):
        return ""
    plain = all(char.isprintable() or char in "\n\t" for char in text)
    return text.strip() if result.exit_code == 0 and plain else ""
