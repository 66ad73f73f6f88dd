import os
import socket
import tempfile
import threading
from pathlib import Path

import pytest

from stockade.core.errors import ModelUnavailable
from stockade.models.local import server_lease
from stockade.models.local.server_lease import connect, listen, locked, running, runtime_folder, sockets


def test_a_folder_for_its_owner_alone() -> None:
    folder = runtime_folder()
    assert folder.parent == Path(os.environ["XDG_RUNTIME_DIR"])
    assert folder.stat().st_mode & 0o777 == 0o700
    assert runtime_folder() == folder


@pytest.mark.parametrize("base", ["", "/no/where", "/proc/1/root"])
def test_without_a_runtime_folder_of_ours(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", base)
    if base == "/proc/1/root" and os.geteuid() == 0:
        monkeypatch.setattr(server_lease, "_is_ours", lambda _: False)
    assert runtime_folder() == tmp_path / f"stockade-{os.geteuid()}"


def test_what_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = Path(os.environ["XDG_RUNTIME_DIR"])
    (base / "stockade").symlink_to(tmp_path)
    with pytest.raises(ModelUnavailable, match="not a folder of yours alone"):
        runtime_folder()
    (base / "stockade").unlink()
    (base / "stockade").write_text("")
    with pytest.raises(ModelUnavailable, match="not a folder of yours alone"):
        runtime_folder()
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with pytest.raises(ModelUnavailable, match="too long for a socket"):
        runtime_folder()


def test_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = runtime_folder()
    order: list[str] = []

    def other() -> None:
        with locked(folder):
            order.append("other")

    with locked(folder):
        monkeypatch.setattr(server_lease, "_LOCK_PATIENCE_S", 0.0)
        with pytest.raises(ModelUnavailable, match="does not let go"), locked(folder):
            pass
        monkeypatch.undo()
        thread = threading.Thread(target=other)
        thread.start()
        order.append("first")
    thread.join()
    assert order == ["first", "other"]


def test_sockets_of_the_living_and_the_dead() -> None:
    path = runtime_folder() / "a.sock"
    assert connect(path) is None
    with listen(path):
        connection = connect(path)
        assert connection is not None
        connection.close()
    assert sockets(path.parent) == [path]
    assert connect(path) is None
    with listen(path):
        pass
    path.unlink()
    path.mkdir()
    with pytest.raises((ModelUnavailable, OSError)):
        listen(path)


def test_a_keeper_that_hangs_is_named_with_what_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_lease, "_ANSWER_TIMEOUT_S", 0.05)
    path = runtime_folder() / "a.sock"
    with listen(path), pytest.raises(ModelUnavailable, match="does not answer: timed out") as caught:
        running()
    assert caught.value.hint == f"end it: pkill -KILL -f {path}"


def test_one_that_ends_before_it_has_read_a_question_is_not_running() -> None:
    path = runtime_folder() / "a.sock"

    def end() -> None:
        connection, _ = listener.accept()
        connection.recv(1, socket.MSG_PEEK)
        connection.close()

    with listen(path) as listener:
        thread = threading.Thread(target=end)
        thread.start()
        assert running() == []
        thread.join()
