"""What keeps a text from being JSON that fits a schema."""

import json
from typing import TYPE_CHECKING, Any

from stockade.apart import given, tell, told
from stockade.core.text import one_line

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

_MOST, _PROBLEM_CHARS = 5, 300
_PATIENCE_S = 30.0
"""On a machine that is busy with others; what has no end is ended after some seconds of processor time."""
_ENDLESS = ('"pattern', '"uniqueItems"')


def loaded(text: str) -> Any:
    """ValueError for what is no JSON; NaN and Infinity are none."""

    def refused(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refused)


def validator(schema: dict[str, Any]) -> "Validator":
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    made: Validator = validator_for(schema, Draft202012Validator)(schema, registry=Registry())
    return made


def problems(schema: dict[str, Any], text: str) -> list[str]:
    """What keeps `text` from being JSON that fits, a few of them; none where it does. Some expressions of a
    schema have no end for some texts: they are tried apart.
    """
    if not any(word in json.dumps(schema) for word in _ENDLESS):
        return _problems(schema, text)
    found: list[list[str]] = told("stockade.answers.schema_problems", [schema, text], _PATIENCE_S)
    return found[0] if found else ["it cannot be compared with the schema: its patterns take too long for this answer"]


def _problems(schema: dict[str, Any], text: str) -> list[str]:
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        value = loaded(text)
    except ValueError as error:
        return [f"it is no JSON: {one_line(str(error), _PROBLEM_CHARS)}"]
    except RecursionError:
        return ["it is nested too deeply"]
    try:
        found = [best_match([error]) or error for error in validator(schema).iter_errors(value)]
    except (Unresolvable, RecursionError) as error:
        return [f"it cannot be compared with the schema: {one_line(str(error), _PROBLEM_CHARS)}"]
    said = dict.fromkeys(one_line(f"{error.json_path}: {error.message}", _PROBLEM_CHARS) for error in found)
    more = [f"and {len(said) - _MOST} more"] if len(said) > _MOST else []
    return [*list(said)[:_MOST], *more]


if __name__ == "__main__":
    tell(_problems(*given()))
