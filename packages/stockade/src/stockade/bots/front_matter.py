"""The head of a Markdown file: `key: value` lines between two lines of `---`."""

_MARK = "---"
MAX_LINES = 50


def front_matter(text: str) -> dict[str, str] | None:
    """Its plain values by key; None for a file without one. Lists and nested values are left out."""
    lines = text.split("\n")
    if not lines or lines[0].strip() != _MARK:
        return None
    values: dict[str, str] = {}
    for line in lines[1:MAX_LINES]:
        if line.strip() == _MARK:
            return values
        key, colon, value = line.partition(":")
        if colon and key and not key[0].isspace() and value.strip():
            values[key.strip()] = value.strip().strip("'\"")
    return None
