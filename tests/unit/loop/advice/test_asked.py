"""A question, a task, and both: told by words, and in doubt it is a task."""

import pytest
from bench.ability.sets import SETS

from stockade.loop.advice.asked import asks_for_words, only_asks

TASKS = [task.words for name, tasks in SETS.items() if name != "questions" for task in tasks]
QUESTIONS = [task.words for task in SETS["questions"]]


@pytest.mark.parametrize("task", TASKS)
def test_no_task_that_wants_a_file_only_asks(task: str) -> None:
    assert not only_asks(task)


@pytest.mark.parametrize("task", QUESTIONS)
def test_a_question_asks_for_words(task: str) -> None:
    assert asks_for_words(task)


def test_most_questions_only_ask() -> None:
    """The others have a word that may mean a change, like "add up": they are shown that nothing has changed."""
    assert sum(map(only_asks, QUESTIONS)) >= len(QUESTIONS) - 2


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("Print a.txt and b.txt.", True),
        ("Sort a.txt.", False),
        ("Say hello.", True),
        ("Make a file.", False),
        ("do it", False),
        ("Run the tests.", False),
        ("What do the amounts add up to?", True),
        ("Print the list and add it up.", False),
    ],
)
def test_other_tasks(task: str, words: bool) -> None:
    assert asks_for_words(task) == only_asks(task) == words


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("How many files are in bundle.zip? Write only the number into count.txt.", False),
        ("How often did a user log in? Save it in logins.txt, please.", False),
        ("Which is the largest file? Write its name into largest.txt and tell me its size.", True),
        ("What does config.py write to the log?", True),
        ("Write a poem into a.txt. What is in b.txt?", False),
        ("Write a poem. What is in b.txt?", True),
    ],
)
def test_an_answer_that_goes_into_a_file_is_none_for_the_person(task: str, words: bool) -> None:
    assert asks_for_words(task) == words


@pytest.mark.parametrize("words", ["write in a ", "write ", "in ", "a.b ", "how "])
def test_a_long_task_is_read_in_time(words: str) -> None:
    """A pattern that begins anew at each word took minutes for a tenth of this; the limit of the test run ends it."""
    assert asks_for_words(words * 20_000) in (True, False)
