import signal
import tempfile

from stockade.models.last_words import ending, last_words, last_words_of


def test_the_line_that_says_why() -> None:
    log = "0.00.001 I loading\n0.00.002 E gguf_init: bad\x1b[0m  magic\n0.00.003 E srv: failed\n0.00.004 I bye\n"
    assert last_words(log) == "gguf_init: bad[0m magic"
    assert last_words("one\n\ntwo\n") == "two"
    assert last_words("") == ""


def test_of_a_long_log_only_the_end_counts() -> None:
    with tempfile.TemporaryFile() as log:
        log.write(b"0.00.001 E old\n" + b"0.00.002 I nothing\n" * 10_000 + b"0.00.003 E new\n")
        log.flush()
        assert last_words_of(log) == "new"


def test_endings() -> None:
    assert ending(1) == "ended with status 1"
    assert ending(-signal.SIGKILL) == "was ended by SIGKILL"
    assert ending(-77) == "was ended by signal 77"
