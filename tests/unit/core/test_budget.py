"""Bounds, what is left of them, and that sub-bots draw on their parent's."""

import pytest

from stockade.core.budget import LAST, LOW, Account, Budget, Spent, exhausted
from stockade.core.messages import Usage


class Bot:
    """What one bot has used, as a fold over its events would say it."""

    def __init__(self) -> None:
        self.used = Spent()

    def __call__(self, now: float) -> Spent:
        return self.used.model_copy(update={"elapsed_s": now})

    def uses(self, turns: int = 0, tokens: int = 0, cost: float = 0.0) -> None:
        usage = Usage(prompt_tokens=tokens, cost=cost)
        self.used = Spent(turns=self.used.turns + turns, usage=self.used.usage + usage)


def test_a_sub_bot_draws_on_its_parents_budget() -> None:
    boss, worker = Bot(), Bot()
    above = Account(Budget(max_turns=10, max_tokens=1000, timeout_s=60), boss)
    below = Account(Budget(max_turns=50, timeout_s=0), worker, above)
    boss.uses(turns=4, tokens=100)
    worker.uses(turns=5, tokens=800)
    assert above.exhausted(1) is None
    assert above.spent(1).turns == 9
    assert below.exhausted(1) is None
    worker.uses(turns=1)
    assert above.exhausted(1) == "turns: 10 of 10"
    assert below.exhausted(1) == "turns: 10 of 10, with all bots"


def test_a_sub_bot_has_bounds_of_its_own() -> None:
    boss, worker = Bot(), Bot()
    above = Account(Budget(max_turns=10), boss)
    below = Account(Budget(max_turns=2), worker, above)
    worker.uses(turns=2)
    assert below.exhausted(1) == "turns: 2 of 2"
    assert above.exhausted(1) is None


def test_several_sub_bots_share_what_is_there() -> None:
    boss, one, two, deep = Bot(), Bot(), Bot(), Bot()
    above = Account(Budget(max_tokens=100, max_turns=0), boss)
    first, second = Account(Budget(), one, above), Account(Budget(), two, above)
    third = Account(Budget(), deep, second)
    one.uses(tokens=60)
    deep.uses(tokens=50)
    bounds = [account.exhausted(0) for account in (above, first, second, third)]
    assert bounds == ["tokens: 110 of 100", *["tokens: 110 of 100, with all bots"] * 2,
                      "tokens: 110 of 100, with all bots, with all bots"]  # fmt: skip


def test_the_time_is_the_shortest_of_all_above() -> None:
    above = Account(Budget(timeout_s=60), Bot())
    assert Account(Budget(timeout_s=0), Bot(), above).seconds_left(20) == 40
    assert Account(Budget(timeout_s=25), Bot(), above).seconds_left(20) == 5
    assert Account(Budget(timeout_s=0), Bot()).seconds_left(20) is None


def test_two_words_of_warning() -> None:
    bot = Bot()
    account = Account(Budget(max_turns=20, timeout_s=0), bot)
    bot.uses(turns=15)
    assert account.warning(0, 0) is None
    bot.uses(turns=1)
    assert account.warning(0, 0) == "What is left: 4 of 20 turns. Come to an end in time."
    assert account.warning(0, LOW) is None
    bot.uses(turns=3)
    assert account.warning(0, LOW) == "What is left: 1 of 20 turns. Finish now: say what is done and what is not."
    assert account.warning(0, LAST) is None


@pytest.mark.parametrize(
    ("budget", "turns", "tokens", "cost", "now", "words"),
    [
        (Budget(timeout_s=600, max_turns=0), 0, 0, 0.0, 500.0, "What is left: 100 of 600 seconds. Come"),
        (Budget(timeout_s=600, max_turns=0), 0, 0, 0.0, 590.0, "What is left: 10 of 600 seconds. Finish"),
        (Budget(max_tokens=1000), 0, 850, 0.0, 0.0, "What is left: 150 of 1000 tokens. Come"),
        (Budget(max_cost=0.5), 0, 0, 0.49, 0.0, "What is left: 0.0100 of 0.5 USD. Finish"),
        (Budget(max_turns=10, max_tokens=1000), 8, 900, 0.0, 0.0, "What is left: 2 of 10 turns, 100 of 1000 tokens. C"),
        (Budget(max_turns=10, max_tokens=1000), 9, 900, 0.0, 0.0, "What is left: 1 of 10 turns. Finish"),
    ],
)
def test_each_bound_warns(budget: Budget, turns: int, tokens: int, cost: float, now: float, words: str) -> None:
    bot = Bot()
    bot.uses(turns, tokens, cost)
    assert (Account(budget, bot).warning(now, 0) or "").startswith(words)


def test_whoever_has_few_turns_or_no_bounds_is_not_told() -> None:
    bot = Bot()
    bot.uses(turns=2, tokens=10**9, cost=1e9)
    assert Account(Budget(max_turns=3), bot).warning(1, 0) is None
    assert Account(Budget(max_turns=0, timeout_s=0), bot).warning(1e9, 0) is None


def test_a_sub_bot_is_warned_of_its_parents_end() -> None:
    boss, worker = Bot(), Bot()
    above = Account(Budget(max_turns=10), boss)
    below = Account(Budget(max_turns=0), worker, above)
    boss.uses(turns=8)
    assert below.warning(0, 0) == "What is left: 2 of 10 turns. Come to an end in time."


def test_nothing_is_spent_at_the_start() -> None:
    assert exhausted(Budget(), Spent()) is None
    assert exhausted(Budget(max_turns=0, timeout_s=0), Spent(turns=10**6, elapsed_s=1e9)) is None
