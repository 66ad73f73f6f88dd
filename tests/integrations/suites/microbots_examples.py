"""The examples that Microbots publishes (README, "Customizability", "Create your first project"), in our words: PACKAGE
EXAMPLE, in a folder that holds `app` and `docs`. Prints the result as JSON.

With `microbots` itself its container is replaced by bubblewrap, with the folder where its container would have it: its
image comes from a registry, and there is none. Bots, prompts, reading of answers and loop are its own.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGE, EXAMPLE = sys.argv[1:3]
THEIRS = PACKAGE == "microbots"


def name(module: str, what: str) -> Any:
    """There its modules, here one."""
    return getattr(importlib.import_module(f"{PACKAGE}.{module}".rstrip(".") if THEIRS else PACKAGE), what)


MicroBot, WritingBot, LogAnalysisBot = (name("", one) for one in ("MicroBot", "WritingBot", "LogAnalysisBot"))
Mount, MountType = (name("extras.mount", one) for one in ("Mount", "MountType"))
PermissionLabels = name("constants", "PermissionLabels")
MODEL: dict[str, Any] = {"model": "openai/gpt-5"}


def bubblewrap() -> Any:
    from microbots.environment.Environment import CmdReturn, Environment  # noqa: PLC0415 (only with theirs)

    class Bubblewrap(Environment):  # type: ignore[misc, unused-ignore]
        copied: tuple[str, ...] = ()

        def start(self) -> None:
            """A command at a time."""

        def stop(self) -> None:
            """The same."""

        def execute(self, command: str, timeout: int | None = 300, sensitive: bool = False) -> Any:
            app = Path("app").absolute()
            bind = "--ro-bind" if EXAMPLE in ("auditor", "log") else "--bind"
            links = [word for name in ("bin", "lib", "lib64") for word in ("--symlink", f"usr/{name}", f"/{name}")]
            root = ["bwrap", "--tmpfs", "/", "--ro-bind", "/usr", "/usr", *links, "--dir", "/var/log"]
            held = [*root, bind, str(app), "/workdir/app", *self.copied]
            done = subprocess.run([*held, "sh", "-c", command], capture_output=True, text=True, check=False)
            return CmdReturn(stdout=done.stdout, stderr=done.stderr, return_code=done.returncode)

        def copy_to_container(self, host: str, inside: str) -> bool:
            self.copied = (*self.copied, "--ro-bind", host, inside)
            return True

    return {"environment": Bubblewrap()}


GIVEN = {**MODEL, **(bubblewrap() if THEIRS else {"answers": "native"})}  # the server's answers are counted: no trial


class SecurityAuditorBot(MicroBot):  # type: ignore[misc, valid-type]
    """A bot of the user's own."""

    def __init__(self, folder_to_mount: str, **options: Any) -> None:
        place = f"//workdir/{Path(folder_to_mount).name}"  # as it is published
        mount = Mount(folder_to_mount, place, PermissionLabels.READ_ONLY)
        super().__init__(folder_to_mount=mount, system_prompt="You are a security auditor.", **options)


def writing() -> Any:
    bot = WritingBot(folder_to_mount="app", **GIVEN)
    return bot.run("Fix the build error and make sure the build is successful.", timeout_in_seconds=60)


def mounts() -> Any:
    code = Mount(host_path=str(Path("app").absolute()), sandbox_path="/workdir/app",
                 permission=PermissionLabels.READ_WRITE, mount_type=MountType.MOUNT)  # fmt: skip
    docs = Mount(host_path=str(Path("docs").absolute()), sandbox_path="/workdir/docs",
                 permission=PermissionLabels.READ_ONLY, mount_type=MountType.COPY)  # fmt: skip
    return MicroBot(folder_to_mount=code, **GIVEN).run(task="Fix the bug", additional_mounts=[docs])


def auditor() -> Any:
    return SecurityAuditorBot(folder_to_mount=str(Path("app").absolute()), **GIVEN).run("Audit the code")


def log() -> Any:
    return LogAnalysisBot(folder_to_mount="app", **GIVEN).run(file_name="app/build.log", timeout_in_seconds=60)


def iterations() -> Any:
    return WritingBot(folder_to_mount="app", **GIVEN).run("Never end", max_iterations=2)


def by_token() -> Any:
    """A token instead of a key, from a function of the user's."""
    given = {**GIVEN, "model": "azure-openai/gpt-5"}
    return WritingBot(folder_to_mount="app", token_provider=lambda: "a-token", **given).run("Fix it")


found = {one.__name__: one for one in (writing, mounts, auditor, log, iterations, by_token)}[EXAMPLE]()
print(json.dumps({"status": found.status, "result": found.result, "error": found.error}))
