"""What the attacks go for: a secret, a victim, sockets, shared memory, an inherited descriptor; on the host."""

import ctypes
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from stockade_sandbox.doctor.escapes import Bait

_IPC_CREAT, _IPC_RMID = 0o1000, 0


@dataclass(frozen=True)
class Scene:
    host_dir: Path
    folder: Path
    bait: Bait
    variables: dict[str, str]
    loose: dict[str, str]
    """What the environment of the starting process has, and a sandbox's must not."""

    def mark_is_there(self, mark: str) -> bool:
        """Whether the host finds what an attack should have left; `FOLDER:!x` is a file that should be gone."""
        if not mark.startswith("FOLDER:"):
            return (self.host_dir / mark).exists()
        name = mark.removeprefix("FOLDER:")
        return not (self.folder / name[1:]).exists() if name.startswith("!") else (self.folder / name).exists()

    def reset(self) -> None:
        """The given folder and the marks as they were before any attack."""
        left = [self.host_dir / "hard", self.host_dir / "moved", *self.host_dir.glob("mark-*")]
        for path in [*self.folder.iterdir(), *left]:
            if path.name == "live.sock" or not (path.is_symlink() or path.exists()):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        (self.folder / "victim.txt").write_text("x")


def _listen(stack: ExitStack, address: str) -> None:
    server = stack.enter_context(socket.socket(socket.AF_UNIX))
    server.bind(address)
    server.listen()
    if not address.startswith("\0"):
        os.chmod(address, 0o777)


def _loose(host_dir: Path, folder: Path, home: Path) -> dict[str, str]:
    socket_path = str(host_dir / "host.sock")
    return {
        "ATTACK_TOKEN": "t0ken", "SSH_AUTH_SOCK": socket_path, "OPENAI_API_KEY": "k3y", "AWS_SECRET_ACCESS_KEY": "k3y",
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={socket_path}", "XDG_RUNTIME_DIR": str(host_dir), "DISPLAY": ":0",
        "VIRTUAL_ENV": str(host_dir), "LD_PRELOAD": "libc.so.6", "PYTHONPATH": str(host_dir),
        "BASH_ENV": "/dev/null", "OLDPWD": str(folder), "HOME": str(home),
    }  # fmt: skip


def _shared_memory(stack: ExitStack) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    key = 0x53544F43 ^ os.getpid()
    segment = libc.shmget(key, 4096, _IPC_CREAT | 0o666)
    assert segment >= 0
    stack.callback(libc.shmctl, segment, _IPC_RMID, None)
    return key


@contextmanager
def scene(probe: str) -> Iterator[Scene]:
    """Everything laid out; the test's own process carries ATTACK_TOKEN and an inheritable descriptor of the secret."""
    with ExitStack() as stack:
        host_dir = Path(tempfile.mkdtemp(prefix="stockade-attack-"))
        stack.callback(shutil.rmtree, host_dir)
        host_dir.chmod(0o777)
        secret = host_dir / "secret"
        secret.write_text("s3cret\n")
        secret.chmod(0o644)
        folder = host_dir / "folder"
        folder.mkdir()
        inherited = os.open(host_dir, os.O_RDONLY)
        stack.callback(os.close, inherited)
        os.set_inheritable(inherited, True)
        _listen(stack, str(host_dir / "host.sock"))
        _listen(stack, str(folder / "live.sock"))
        abstract = f"stockade-attack-{os.getpid()}"
        _listen(stack, "\0" + abstract)
        port = stack.enter_context(socket.socket())
        port.bind(("127.0.0.1", 0))
        port.listen(64)
        sixth = stack.enter_context(socket.socket(socket.AF_INET6))
        sixth.bind(("::1", port.getsockname()[1]))
        sixth.listen(64)
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(("127.0.0.1", 0))
        shared = Path(f"/dev/shm/stockade-attack-{os.getpid()}")
        shared.write_text("s3cret\n")
        stack.callback(shared.unlink)
        victim = subprocess.Popen(
            ["stockade-victim", "1000"], executable="/bin/sleep", env={"ATTACK_TOKEN": "t0ken"}, cwd=host_dir
        )
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        home = Path(tempfile.mkdtemp(prefix="stockade-home-"))
        stack.callback(shutil.rmtree, home)
        (home / "letter").touch()
        bait = Bait(
            str(secret), victim.pid, "sleep", "ATTACK_TOKEN=t0ken", port.getsockname()[1], str(home), probe, victim.pid
        )
        variables = {
            **bait.variables(), "HOST_DIR": str(host_dir), "SOCKET": str(host_dir / "host.sock"), "ABSTRACT": abstract,
            "FOLDER": str(folder), "VICTIM": str(victim.pid), "SHM": str(_shared_memory(stack)),
            "HOST_NAME": socket.gethostname(), "SHM_FILE": str(shared), "UDP": str(datagrams.getsockname()[1]),
        }  # fmt: skip
        found = Scene(host_dir, folder, bait, variables, _loose(host_dir, folder, home))
        found.reset()
        yield found
