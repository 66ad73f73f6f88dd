"""Parsing of text that may be anything: no exception and no warning gets out."""

import ast
import warnings

_UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


def expression(text: str) -> ast.expr | None:
    """The one expression that the text is; None when it is not one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except _UNPARSABLE:
        return None


def statements(text: str) -> list[ast.stmt] | None:
    """The statements of a program; None when it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text).body
    except _UNPARSABLE:
        return None


def literal(text: str) -> str | None:
    """The text of one literal as Python writes it; also `true`, `null` and the like of other languages."""
    text = _FOREIGN.get(text, text)
    if not text or len(text) > 10_000:
        return None
    if text in _EMPTY:
        return text
    node = expression(text)
    if node is None:
        return None
    try:
        ast.literal_eval(node)
    except (*_UNPARSABLE, TypeError):
        return None
    return ast.unparse(node)


_FOREIGN = {"true": "True", "false": "False", "null": "None", "none": "None", "TRUE": "True", "FALSE": "False"}
_EMPTY = frozenset({"set()", "frozenset()", "float('inf')", "float('nan')", "-float('inf')", 'float("inf")'})
