"""The command line of a tool, made from its schema: `--value TEXT` for each parameter."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from stockade.cli.safe import one_line
from stockade.core.errors import UsageError
from stockade.core.tools import ToolSpec

_WORDS = {
    "string": "TEXT",
    "integer": "N",
    "number": "NUMBER",
    "boolean": "true|false",
    "array": "JSON",
    "object": "JSON",
}


def parsed(spec: ToolSpec, words: Sequence[str], program: str) -> dict[str, Any] | None:
    """The arguments; None when only --help was asked for, and shown. UsageError and click's own errors otherwise."""
    options: list[click.Parameter] = [
        click.Option(
            [f"--{name}", f"p{number}"],
            required=name in spec.required,
            metavar=_metavar(kind),
            help=one_line(str(kind.get("description", ""))) or None,
        )
        for number, (name, kind) in enumerate(spec.properties.items())
    ]
    made = click.Command(spec.name, params=options, help=one_line(spec.description), add_help_option=True)
    try:
        with made.make_context(program, list(words)) as context:
            given = dict(context.params)
    except click.exceptions.Exit:
        return None
    found: dict[str, Any] = {}
    for number, (name, kind) in enumerate(spec.properties.items()):
        if (text := given[f"p{number}"]) is not None:
            found[name] = _value(name, kind, text)
    return found


def _metavar(kind: Mapping[str, Any]) -> str:
    inner = _inner(kind)
    if "enum" in inner:
        return "|".join(str(one) for one in inner["enum"])
    return _WORDS.get(str(inner.get("type")), "JSON")


def _inner(kind: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of an option, what it holds."""
    choices = [one for one in kind.get("anyOf", ()) if one.get("type") != "null"]
    return choices[0] if len(choices) == 1 else kind


def _value(name: str, kind: Mapping[str, Any], text: str) -> Any:
    if _inner(kind).get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"--{name} {one_line(text, 60)!r} is not {_metavar(kind)}") from None
