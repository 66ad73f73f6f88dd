"""Where thinking aloud ends that a server left in the text of an answer."""

import pytest

from stockade.core.text import spoken_part


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("hello", "hello"),
        ("", ""),
        ("<think>a {b}</think>hello", "hello"),
        ("\n<think>\na\n</think>\n\nhello", "\n\nhello"),
        ("<thinking>a</thinking>hello", "hello"),
        ("[THINK]a[/THINK]hello", "hello"),
        ("<think></think>", ""),
        ("<think>a", None),
        ("[THINK]a", None),
        # The template opened it.
        ("Okay, the user ...\n</think>\n\nhello", "\n\nhello"),
        ("Okay.</think>\nhello", "\nhello"),
        # About such tags.
        ('{"command": "echo \'</think>\' > a"}', '{"command": "echo \'</think>\' > a"}'),
        ("### Code\n```\nx\n</think>\n```", "### Code\n```\nx\n</think>\n```"),
        ("````write_file a\n```\n</think>\n````", "````write_file a\n```\n</think>\n````"),
        ("I write <think>\nx\n</think>\ninto it", "I write <think>\nx\n</think>\ninto it"),
    ],
)
def test_spoken_part(text: str, spoken: str | None) -> None:
    assert spoken_part(text) == spoken
