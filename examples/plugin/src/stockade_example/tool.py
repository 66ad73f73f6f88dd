"""A tool that is a function. It runs in the process of whoever uses Stockade, outside the sandbox."""

from stockade import tool


@tool
def count_words(text: str) -> int:
    """How many words a text has."""
    return len(text.split())
