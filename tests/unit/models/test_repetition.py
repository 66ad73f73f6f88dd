"""An answer that says one thing over and over."""

import random
import string

import pytest

from stockade.models.answer_builder import LEAST_CHARS, Repeats


def heard(text: str, step: int = 3) -> int | None:
    """After how many characters it was noticed."""
    repeats = Repeats()
    for start in range(0, len(text), step):
        if repeats.hear(text[start : start + step]):
            return start + step
    return None


@pytest.mark.parametrize(
    "said",
    [
        "git-",
        "This is a list of people with their ages. ",
        "\n",
        "x" * 99 + "y",
        "a sentence of some length. " * 8 + "And one more.",
    ],
)
def test_one_thing_over_and_over_is_noticed(said: str) -> None:
    text = 'I think: {"command": "' + said * 4000
    found = heard(text)
    assert found is not None
    assert found <= len(text) - len(said * 4000) + max(LEAST_CHARS, 12 * len(said)) + 200 + 3


def test_what_is_said_in_large_pieces_is_noticed_too() -> None:
    assert heard("All work and no play. " * 1000, step=5000) == 5000


@pytest.mark.parametrize(
    "text",
    [
        "-" * 400 + "\n" + "=" * 400 + "\n",
        "\n".join(f"row {number},0,0,0,0" for number in range(2000)),
        "\n".join(f"print('This is line {number} of a program')" for number in range(2000)),
        "".join(random.Random(1).choices(string.ascii_letters + " \n", k=50_000)),
        "0,0,0,0,0,0,0,0\n" * 64 + "1,1,1,1\n",
    ],
    ids=["rules", "table", "program", "noise", "zeros"],
)
def test_text_that_goes_on_is_not(text: str) -> None:
    assert heard(text) is None


def test_what_was_repeated_once_and_went_on_is_forgotten() -> None:
    repeats = Repeats()
    assert not any(repeats.hear(word) for word in ["-" * 900, "".join(map(str, range(3000)))])
