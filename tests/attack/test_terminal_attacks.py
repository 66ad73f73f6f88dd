"""On a real terminal: what a bot prints, writes and names is shown, not obeyed; and it cannot type."""

from pathlib import Path

import pytest

from tests.attack.attempts.terminal import KEYS, SEQUENCES
from tests.attack.terminal import shown_by_nobody, shown_by_stockade, typed_by


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return shown_by_nobody(tmp_path_factory.mktemp("raw"))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return shown_by_stockade(tmp_path_factory.mktemp("shown"))


@pytest.mark.parametrize("name", SEQUENCES)
def test_without_care_it_reaches_the_terminal(name: str, raw: bytes) -> None:
    assert SEQUENCES[name] in raw


@pytest.mark.parametrize("name", SEQUENCES)
def test_it_is_shown_and_not_obeyed(name: str, shown: bytes) -> None:
    assert SEQUENCES[name] not in shown


def test_all_of_it_was_there_to_be_shown(shown: bytes) -> None:
    """Spelled out: what ran, what it printed, what was changed, and the answer."""
    assert shown.count(b"\\x1b]0;pwned\\x07") >= 4
    assert b"\\u202e" in shown


@pytest.mark.parametrize("name", KEYS)
def test_without_a_sandbox_it_types(name: str, tmp_path: Path) -> None:
    program, evidence = KEYS[name]
    assert evidence in typed_by(program, tmp_path, sandboxed=False)


@pytest.mark.parametrize("name", KEYS)
def test_a_sandboxed_program_has_no_terminal(name: str, tmp_path: Path) -> None:
    program, evidence = KEYS[name]
    assert evidence not in typed_by(program, tmp_path, sandboxed=True)
