"""The sixty blind attacks: each gets through on bare ground, and not in the sandbox; GOT_THROUGH has the others."""

from collections.abc import Iterator

import pytest

from tests.attack.blind import afterwards, folders
from tests.attack.blind.ground import Bare, Ground, Sealed, User, ground_of, users
from tests.attack.blind.table import ATTACKS, Attack

MODULES = (afterwards, folders)

# By name of the attack and of the user: why. docs/security/blind.md says more.
BOTH = {
    "own_settings": "a process may set its own oom_score_adj and the like: /proc is not read-only there; nobody else's",
    "projects": "what an ordinary command of the user's obeys is shown first and not held: docs/record.md",
    "locks": "flock and inotify on files of /usr and devices: a covert channel, which SECURITY.md names",
}
ORDINARY_ONLY = {
    "hidden_memory": "memory is bounded for each process alone, and memfds are in none: SECURITY.md, by platform",
    "devices": "an ordinary user's /dev has the host's nodes: their times can be set to now, as by anybody",
}
GOT_THROUGH: dict[tuple[str, str], str] = {
    **{(name, user): why for name, why in BOTH.items() for user in ("root", "ordinary")},
    **{(name, "ordinary"): why for name, why in ORDINARY_ONLY.items()},
}


def cases(kind: type[Ground]) -> Iterator[object]:
    for place, user in enumerate(users()):
        for number, attack in enumerate(ATTACKS, 1):
            reason = GOT_THROUGH.get((attack.made.__name__, user.name))
            shows_it = place == 0 if kind is Bare else user.name == "ordinary"  # outside one user is as good as another
            marks = [pytest.mark.slow if shows_it else pytest.mark.long]
            if reason and kind is Sealed:
                marks.append(pytest.mark.xfail(reason=reason, raises=AssertionError, strict=True))
            yield pytest.param(user, attack, id=f"{number}-{attack.made.__name__}-{user.name}", marks=marks)


@pytest.mark.parametrize(("user", "attack"), list(cases(Bare)))
def test_it_gets_through_where_there_is_no_sandbox(user: User, attack: Attack) -> None:
    with ground_of(Bare, user) as ground:
        assert attack.made(ground)


@pytest.mark.parametrize(("user", "attack"), list(cases(Sealed)))
def test_the_sandbox_holds_it(user: User, attack: Attack) -> None:
    with ground_of(Sealed, user) as ground:
        got = attack.made(ground)
    assert got == []


def test_each_promise_has_three() -> None:
    counts = {promise: sum(a.promise == promise for a in ATTACKS) for promise in range(1, 21)}
    assert counts == dict.fromkeys(range(1, 21), 3)
