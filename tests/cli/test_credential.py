"""`--credential` from the flag to the record: a service gets the key, and nothing inside or on disk has it."""

import http.server
import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade.testing import say
from stockade_sandbox import AsyncSandbox, Sandbox
from tests.cli.conftest import DONE, PATIENCE_S, Stage
from tests.conformance.ordinary_user import run_as_ordinary_user
from tests.support.tmux import Screen

VALUE = "sk-real-0123456789abcdef"
URL = "http://127.0.0.1:3128/credential/localhost:PORT/x"


class Echo(http.server.ThreadingHTTPServer):
    """Gives back the headers that it got, and keeps them in `got`."""

    def __init__(self) -> None:
        self.got: list[str] = []
        super().__init__(("127.0.0.1", 0), _Answer)


class _Answer(http.server.BaseHTTPRequestHandler):
    server: Echo

    def do_GET(self) -> None:
        self.server.got.append(str(self.headers))
        body = str(self.headers).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Echo]:
    monkeypatch.setenv("MY_KEY", VALUE)
    with Echo() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def use(service: Echo) -> str:
    """A command that uses the key and keeps what it gets to see."""
    url = URL.replace("PORT", str(service.server_port))
    return f'curl -sS -H "Authorization: Bearer $MY_KEY" {url} | tee answer; env > variables'


def test_in_a_shell_of_the_users_own_on_a_terminal(stage: Stage, service: Echo, tmp_path: Path) -> None:
    told = ["shell", "--folder", ".", "--credential", f"MY_KEY@localhost:{service.server_port}"]
    shown = Screen(tmp_path, told, stage.demo, stage.environment(), PATIENCE_S)
    try:
        shown.until("bash-")
        shown.type(f"{use(service)}; tty; echo length ${{#MY_KEY}}\r")
        shown.until("Authorization: Bearer", "/dev/pts/", "length")
        assert VALUE not in shown.text
        assert f"length {len(VALUE)}" not in shown.text
        shown.type("exit 3\r")
        assert shown.status() == 3
    finally:
        shown.close()
    assert [f"Authorization: Bearer {VALUE}" in headers for headers in service.got] == [True]
    assert not (stage.demo / "answer").exists()


def with_key(folder: Path) -> list[str]:
    """The files below that have it."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert files
    return [str(path) for path in files if VALUE.encode() in path.read_bytes()]


def test_a_run_uses_it_and_keeps_nothing_of_it(stage: Stage, service: Echo) -> None:
    flags = ("--credential", f"MY_KEY@localhost:{service.server_port}", "--apply")
    ended = stage.run(say("shell", command=use(service)), DONE, flags=flags)
    assert ended.status == 0, ended.err
    assert f"Authorization: Bearer {VALUE}" in service.got[0]
    assert f"Authorization: Bearer {'*' * len(VALUE)}" in (stage.demo / "answer").read_text()
    assert "MY_KEY=stockade-MY_KEY-" in (stage.demo / "variables").read_text()
    assert f"GET localhost:{service.server_port}: 200, with MY_KEY" in ended.err
    events = [json.loads(line) for line in stage.call("runs", "show", "--json").out.splitlines()]
    assert [event["credential"] for event in events if event["type"] == "network_requested"] == ["MY_KEY"]
    assert events[0]["policy"]["network"]["hosts"] == [f"localhost:{service.server_port}"]
    assert VALUE not in ended.out + ended.err
    assert with_key(stage.home) == with_key(stage.demo) == []


def test_a_run_that_is_given_it_by_env_keeps_it(stage: Stage, service: Echo) -> None:
    """What the test above looks for is found where it is."""
    ended = stage.run(say("shell", command="env > variables"), DONE, flags=("--env", "MY_KEY", "--apply"))
    assert ended.status == 0, ended.err
    assert with_key(stage.demo)


def test_a_run_goes_on_with_it_but_runs_no_command_that_only_the_record_names(
    stage: Stage, service: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a record says may be anybody's."""
    noted = stage.tmp_path / "noted"
    credential = f"MY_KEY=exec:echo ran >> {noted}; echo $MY_KEY@localhost:{service.server_port}"
    ended = stage.run(say("shell", command=use(service)), DONE, flags=("--credential", credential, "--no-input"))
    assert ended.status == 0, ended.err
    before = noted.read_text()
    model = ("--model", stage.script(say("shell", command=use(service)), DONE))
    again = stage.call("runs", "resume", "last", "again", "--no-input", *model)
    assert again.status == 2, again.err
    assert f"--credential {credential}, which is taken from no record" in again.err
    assert noted.read_text() == before
    monkeypatch.setenv("STOCKADE_CREDENTIAL", credential)
    again = stage.call("runs", "resume", "last", "again", "--no-input", *model)
    assert again.status == 0, again.err
    assert noted.read_text() > before


def test_a_file_of_settings_gives_it_to_a_program(stage: Stage, service: Echo) -> None:
    settings = stage.home / ".config" / "stockade" / "config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(f'credential = ["MY_KEY@localhost:{service.server_port}:x-api-key"]\n')
    ended = stage.call(
        "sandbox", "exec", "--", "bash", "-c", URL.join(("curl -sS ", "")).replace("PORT", str(service.server_port))
    )
    assert ended.status == 0, ended.err
    assert f"x-api-key: {VALUE}" in service.got[0]
    assert VALUE not in ended.out


@pytest.mark.parametrize("keep", [False, True])
def test_from_python(service: Echo, keep: bool) -> None:
    with Sandbox(credentials=[f"MY_KEY@localhost:{service.server_port}"], keep=keep) as box:
        found = box.exec(["bash", "-c", f"cd /tmp; {use(service)}; cat variables"])
        assert f"Authorization: Bearer {VALUE}" in service.got[0]
        assert "MY_KEY=stockade-MY_KEY-" in found.text
        assert VALUE not in found.text
        box.destroy()


@pytest.mark.anyio
async def test_from_python_awaited(service: Echo) -> None:
    async with AsyncSandbox(credentials=[f"MY_KEY@localhost:{service.server_port}"]) as box:
        found = await box.exec(["bash", "-c", f"cd /tmp; {use(service)}; cat variables"])
    assert f"Authorization: Bearer {VALUE}" in service.got[0]
    assert VALUE not in found.text


@pytest.fixture
def home() -> Iterator[Path]:
    """Where an ordinary user comes by."""
    with tempfile.TemporaryDirectory(prefix="stockade-user-") as made:
        yield Path(made)


@pytest.mark.root
def test_an_ordinary_users_program(service: Echo, home: Path) -> None:
    flags = ["--credential", f"MY_KEY=exec:echo {VALUE}@localhost:{service.server_port}"]
    command = [
        sys.executable,
        "-m",
        "stockade.cli",
        "sandbox",
        "exec",
        *flags,
        "--",
        "bash",
        "-c",
        f"cd /tmp; {use(service)}",
    ]
    done = run_as_ordinary_user(command, home)
    assert done.returncode == 0, done.stderr
    assert f"Authorization: Bearer {VALUE}" in service.got[0]
    assert VALUE not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--credential", "MY_KEY"], "--credential: 'MY_KEY' is not understood (write NAME@HOST or NAME@HOST:HEADER)"),
        (["--credential", "NONE@good.test"], "--credential NONE: the variable is not set here"),
        (["--credential", "MY_KEY@10.0.0.1"], "--credential MY_KEY: 10.0.0.1 is an address"),
        (["--credential", "MY_KEY=file:/none@good.test"], "--credential MY_KEY: /none: No such file or directory"),
        (["--credential", "MY_KEY@good.test", "--env", "MY_KEY=1"], "--env MY_KEY is a credential's name too"),
    ],
)
def test_a_mistake_is_a_line(stage: Stage, service: Echo, words: list[str], problem: str) -> None:
    ended = stage.call("sandbox", "exec", *words, "--", "true")
    assert ended.status in (2, 125), ended.err
    assert problem in ended.err
    assert len(ended.err.splitlines()) <= 2
