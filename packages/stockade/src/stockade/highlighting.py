"""The words of a program, each with what it is, by Pygments, apart: some of its expressions have no end."""

from collections.abc import Sequence

from stockade.apart import given, tell, told

MAX_CHARS, _PATIENCE_S = 200_000, 3.0
Pieces = tuple[tuple[str, str], ...]


def highlighted(texts: Sequence[tuple[str, str]]) -> list[Pieces | None]:
    """Of each language, or file name, and text: its pieces, each with its kind (`Literal.String.Double`). None where
    nobody knows the language, the text is too long, its pieces are not all of it, or it was not read within three
    seconds for all of them.
    """
    found: list[Pieces | None] = [None] * len(texts)
    asked = [text if len(text[1]) <= MAX_CHARS else ("", "") for text in texts]
    for number, pieces in told("stockade.highlighting", asked, _PATIENCE_S) if texts else ():
        if "".join(text for _, text in pieces) == asked[number][1]:  # Pygments makes a line break of a lone return
            found[number] = tuple((kind, text) for kind, text in pieces)
    return found


def main() -> None:
    from pygments import lex  # noqa: PLC0415 (not for who asks)
    from pygments.lexers import get_lexer_by_name, get_lexer_for_filename  # noqa: PLC0415
    from pygments.util import ClassNotFound  # noqa: PLC0415

    for number, (name, text) in enumerate(given()):
        try:
            lexer = get_lexer_for_filename(name, stripnl=False, ensurenl=False)
        except ClassNotFound:
            try:
                lexer = get_lexer_by_name(name, stripnl=False, ensurenl=False)
            except ClassNotFound:
                continue
        tell([number, [(str(kind).removeprefix("Token").lstrip("."), value) for kind, value in lex(text, lexer)]])


if __name__ == "__main__":
    main()
