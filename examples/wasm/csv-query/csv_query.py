"""Questions to a CSV file, as a typed tool in Python (componentize-py)."""

import csv
from pathlib import Path

import wit_world
from componentize_py_types import Err

MAX_ROWS = 100


class WitWorld(wit_world.WitWorld):  # type: ignore[misc]
    """The world of csv_query.wit."""

    def query(self, path: str, column: str | None, equals: str | None, limit: int | None) -> list[wit_world.Row]:
        """The rows in which `column` is `equals`."""
        rows = _read(path)
        if column is not None and rows and column not in rows[0]:
            raise Err(f"there is no column {column!r}; the columns are: {', '.join(rows[0])}")
        wanted = [row for row in rows if column is None or row[column] == (equals or "")]
        return [wit_world.Row(list(row.items())) for row in wanted[: min(limit or MAX_ROWS, MAX_ROWS)]]

    def columns(self, path: str) -> tuple[int, list[str]]:
        """How many rows, and the names of the columns."""
        rows = _read(path)
        return len(rows), list(rows[0]) if rows else []


def _read(path: str) -> list[dict[str, str]]:
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            return [{name: value or "" for name, value in row.items() if name} for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Err(f"{path}: {error}") from None
