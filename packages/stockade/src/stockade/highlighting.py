"""The words of a program, each with what it is, by Pygments in a process of its own: of what a bot wrote its regular
expressions may take for ever, and would hold every thread of this process meanwhile.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Sequence

MAX_CHARS = 200_000
_PATIENCE_S, _MOST_CPU_S = 3.0, 10
Pieces = tuple[tuple[str, str], ...]


def highlighted(texts: Sequence[tuple[str, str]]) -> list[Pieces | None]:
    """Of each language, or file name, and text: its pieces, each with its kind (`Literal.String.Double`). None where
    nobody knows the language, the text is too long, its pieces are not all of it, or it was not read within three
    seconds for all of them.
    """
    found: list[Pieces | None] = [None] * len(texts)
    if not texts:
        return found
    asked = [text if len(text[1]) <= MAX_CHARS else ("", "") for text in texts]
    command = [sys.executable, "-P", "-m", "stockade.highlighting"]
    given = json.dumps(asked).encode()
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=_PATIENCE_S, cwd="/", check=False)
        said = done.stdout
    except subprocess.TimeoutExpired as late:
        said = late.stdout or b""
    except OSError:  # no process more is to be had: nothing that is shown needs colours
        said = b""
    for line in said.split(b"\n")[:-1]:  # the last may be cut off
        number, pieces = json.loads(line)
        if "".join(text for _, text in pieces) == asked[number][1]:  # Pygments makes a line break of a lone return
            found[number] = tuple((kind, text) for kind, text in pieces)
    return found


def main() -> None:
    """The process: texts on stdin, a line of JSON for each that could be read."""
    from pygments import lex  # noqa: PLC0415 (not for who asks)
    from pygments.lexers import get_lexer_by_name, get_lexer_for_filename  # noqa: PLC0415
    from pygments.util import ClassNotFound  # noqa: PLC0415

    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_CPU_S, _MOST_CPU_S))  # should nobody be there to end it
    for number, (name, text) in enumerate(json.load(sys.stdin)):
        try:
            lexer = get_lexer_for_filename(name, stripnl=False, ensurenl=False)
        except ClassNotFound:
            try:
                lexer = get_lexer_by_name(name, stripnl=False, ensurenl=False)
            except ClassNotFound:
                continue
        pieces = [(str(kind).removeprefix("Token").lstrip("."), value) for kind, value in lex(text, lexer)]
        print(json.dumps([number, pieces]), flush=True)


if __name__ == "__main__":
    main()
