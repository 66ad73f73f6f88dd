import signal
import tempfile

from stockade.models.local.supervisor import exit_reason, last_error


def error_of(log: str) -> str:
    with tempfile.TemporaryFile() as file:
        file.write(log.encode())
        file.flush()
        return last_error(file)


def test_the_line_that_says_why() -> None:
    log = "0.00.001 I loading\n0.00.002 E gguf_init: bad\x1b[0m  magic\n0.00.003 E srv: failed\n0.00.004 I bye\n"
    assert error_of(log) == "gguf_init: bad [0m magic"
    assert error_of("one\n\ntwo\n") == "two"
    assert error_of("") == ""


def test_of_a_long_log_only_the_end_counts() -> None:
    assert error_of("0.00.001 E old\n" + "0.00.002 I nothing\n" * 10_000 + "0.00.003 E new\n") == "new"


def test_endings() -> None:
    assert exit_reason(1) == "ended with status 1"
    assert exit_reason(-signal.SIGKILL) == "was ended by SIGKILL"
    assert exit_reason(-77) == "was ended by signal 77"
