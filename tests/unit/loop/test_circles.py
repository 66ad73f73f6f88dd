"""What counts as a repetition, and how long a stretch of them is."""

from stockade.core.actions import Action, Chunk, CommandOutput, Observation, Refused, Shell, Step, WriteFile
from stockade.loop import circles
from stockade.loop.state import Done


def done(action: Action | str, seen: Observation | str = "", turn: int = 1) -> Done:
    action = Shell(command=action) if isinstance(action, str) else action
    if isinstance(seen, str):
        chunks = (Chunk.of("stdout", seen.encode()),) if seen else ()
        seen = CommandOutput(exit_code=0, chunks=chunks, cwd="/workspace")
    return Done(turn, Step(action=action), seen)


def test_the_same_again_with_the_same_outcome() -> None:
    assert circles.stretch([done("ls", "a")] * 4) == 3
    assert circles.stretch([done("ls", "a"), done("ls", "a b")]) == 0
    assert circles.stretch([]) == 0


def test_a_rotation_is_one() -> None:
    assert circles.stretch([done(f"echo {'abc'[n % 3]}", "abc"[n % 3]) for n in range(9)]) == 6


def test_a_clock_or_a_counter_makes_no_difference() -> None:
    dates = [done("date", f"Mon 10:00:{n}") for n in range(5)]
    assert circles.stretch(dates) == 4
    assert circles.stretch([done(f"touch file{n}") for n in range(5)]) == 4
    assert circles.stretch([done(f"touch {'abcdefgh'[n]}") for n in range(5)]) == 0


def test_work_in_between_ends_a_stretch() -> None:
    work = [done("pytest", "1 failed"), done(WriteFile(path="a.py", content="x = a")), done("pytest", "1 failed")]
    assert circles.stretch([*work, done(WriteFile(path="a.py", content="x = b"))]) == 0


def test_an_action_that_was_not_done_again_is_a_repetition_still() -> None:
    assert circles.stretch([done("ls", "a"), done("ls", "a"), done("ls", Refused(reason="no"))]) == 2


def test_output_given_back_as_a_comment_is_one() -> None:
    said = "the quick brown fox jumps"
    assert circles.stretch([done("cat f", said), done(f"echo {said}", said), done(f"# {said}")]) == 2


def test_a_file_written_again_and_again_nearly_as_it_was_is_one() -> None:
    words = "The code I wrote last time makes sure that every line has two spaces, which is a big step"
    drift = [done(WriteFile(path="t", content=words + " on" * n), f"wrote {'abcdef'[n]}") for n in range(5)]
    assert circles.stretch(drift) == 4
    looked = [one for pair in zip(drift, [done(f"cat {name}") for name in "vwxyz"], strict=True) for one in pair]
    assert circles.stretch(looked) == 0
    other = [done(WriteFile(path="t", content=text), text) for text in ("def f(): pass", "import json, sys", words)]
    assert circles.stretch(other) == 0


def test_the_longest_of_a_run() -> None:
    assert circles.longest([False, True, True, False, True]) == 2
    assert circles.longest([]) == 0


def test_what_went_round_is_named_once_each() -> None:
    named = circles.what_went_round([done("ls"), done("pwd"), done("ls"), done("x" * 300)], 4)
    assert named[0] == "`ls` (2 times)"
    assert all(len(words) < 120 for words in named)
