"""A PostgreSQL of the tests' own: Debian's, in a folder of its own, on a Unix socket only. Never skipped."""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

_OWNER = "postgres"
_MISSING = "these tests need PostgreSQL: apt-get install postgresql (.ci/run does)"


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    assert found, _MISSING
    return found[-1].parent


class Server:
    """Started by `start`; `kill` is what a power cut is to its processes, and `start` brings it back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data, self.sockets = folder / "data", folder
        self._process: subprocess.Popen[bytes] | None = None
        root = os.getuid() == 0
        self._user = _OWNER if root else pwd.getpwuid(os.getuid()).pw_name
        if root:
            shutil.chown(folder, _OWNER, _OWNER)
        folder.chmod(0o700)
        self._run([str(_programs() / "initdb"), "-D", str(self.data), "-A", "trust", "-U", _OWNER, "--no-sync",
                   "-E", "UTF8", "--locale=C.UTF-8"])  # fmt: skip

    def address(self, database: str) -> str:
        return f"postgresql://{_OWNER}@/{database}?host={self.sockets}"

    def start(self) -> None:
        """Returns when it takes connections."""
        argv = [str(_programs() / "postgres"), "-D", str(self.data), "-k", str(self.sockets),
                "-c", "listen_addresses=", "-c", "max_connections=40", "-c", "shared_buffers=16MB"]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._as(argv), stdout=subprocess.DEVNULL, stderr=log, cwd="/", start_new_session=True
            )
        self._run([str(_programs() / "pg_isready"), "-q", "-t", "30", "-h", str(self.sockets)], tries=300)

    def new_database(self) -> str:
        """Its address."""
        name = f"t{secrets.token_hex(6)}"
        with psycopg.connect(self.address("postgres"), autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name}")
        return self.address(name)

    def kill(self) -> None:
        """Every process of the server at once, without a word."""
        assert self._process is not None
        leader = int((self.data / "postmaster.pid").read_text().splitlines()[0])
        children = subprocess.run(["pgrep", "-P", str(leader)], capture_output=True, text=True, check=False)
        for pid in [leader, *(int(line) for line in children.stdout.split())]:
            with suppress(ProcessLookupError):  # of a connection that is over
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._run([str(_programs() / "pg_ctl"), "-D", str(self.data), "-m", "immediate", "-w", "stop"])
            self._process.wait()

    def _as(self, argv: Sequence[str]) -> list[str]:
        return ["runuser", "-u", self._user, "--", *argv] if os.getuid() == 0 else list(argv)

    def _run(self, argv: Sequence[str], tries: int = 1) -> None:
        for number in range(tries):
            done = subprocess.run(self._as(argv), capture_output=True, cwd="/", check=False)
            if done.returncode == 0:
                return
            if self._process is not None and self._process.poll() is not None:
                raise AssertionError((self.folder / "log").read_text())
            assert number + 1 < tries, done.stderr.decode()


@contextmanager
def server() -> Iterator[Server]:
    """Directly below /tmp: the path of a Unix socket may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="stockade-pg-", ignore_cleanup_errors=True) as folder:
        running = Server(Path(folder))
        running.start()
        try:
            yield running
        finally:
            running.stop()
