"""The list that attacks write themselves into."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.attack.blind.ground import Ground

Try = Callable[[Ground], list[str]]


@dataclass(frozen=True)
class Attack:
    """`made` returns what got through, nothing when it was held; on bare ground it must get through."""

    promise: int
    name: str
    judged: str
    made: Try


ATTACKS: list[Attack] = []


def attack(promise: int, name: str, judged: str) -> Callable[[Try], Try]:
    def keep(made: Try) -> Try:
        ATTACKS.append(Attack(promise, name, judged, made))
        return made

    return keep
