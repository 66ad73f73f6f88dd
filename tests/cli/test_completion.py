"""The Tab key in the real shells, and what is offered there."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import COUNT, DONE, Stage

ASKS = "bash_complete"
BIN = Path(sys.executable).parent


def offered(stage: Stage, *words: str) -> list[str]:
    """What click is told to offer after the words of a line, of which the last is begun."""
    variables = {
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "_STOCKADE_COMPLETE": "bash_complete",
    }
    ended = subprocess.run(
        [BIN / "stockade"], env=stage.environment() | variables, capture_output=True, text=True, check=False
    )
    assert ended.stderr == ""
    return [line.partition(",")[2] for line in ended.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("stockade comp", ["completion"]),
        ("stockade sandbox ex", ["exec"]),
        ("stockade run --fol", ["--folder"]),
        ("stockade run -b wri", ["writing"]),
        ("stockade run -m embedded/smo", ["embedded/smollm2"]),
        ("stockade run -b ./min", ["./min"]),
        ("stockade run -m scrip", ["scripted/"]),
        ("stockade run -m aut", ["auto"]),
        ("stockade run --smart-model embedded/smo", ["embedded/smollm2"]),
        ("stockade run --fast-model embedded/smo", ["embedded/smollm2"]),
        ("stockade run --fallback embedded/smo", ["embedded/smollm2"]),
        ("stockade completion f", ["fish"]),
    ],
)
def test_what_is_offered(stage: Stage, line: str, names: list[str]) -> None:
    assert offered(stage, *line.split()) == names


def test_runs_are_offered_by_id(stage: Stage) -> None:
    run = recorded(stage)
    assert offered(stage, "stockade", "runs", "show", run[:-1]) == [run]
    assert offered(stage, "stockade", "diff", "la") == ["last"]


def test_nothing_is_said_where_the_record_cannot_be_read(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = stage.tmp_path / "broken"
    broken.write_text("no database")
    monkeypatch.setenv("STOCKADE_STORE", str(broken))
    assert offered(stage, "stockade", "diff", "x") == []


BASH = 'eval "$(stockade completion bash)"; PS1="READ""Y "; bind "set show-all-if-ambiguous on"'
ZSH = 'autoload -U compinit; compinit -u; eval "$(stockade completion zsh)"; PS1="READ""Y "'


def recorded(stage: Stage) -> str:
    """The id of a run."""
    return str(stage.run(COUNT, DONE, flags=("--discard", "--json")).result["run"])


def shell_environment(stage: Stage) -> dict[str, str]:
    stage.home.mkdir(exist_ok=True)
    return stage.environment() | {"PATH": f"{BIN}:/usr/bin:/bin", "TERM": "xterm"}


@pytest.mark.host
@pytest.mark.parametrize(
    ("argv", "setup"),
    [(("bash", "--norc", "--noprofile", "-i"), BASH), (("zsh", "-f", "-i"), ZSH)],
    ids=["bash", "zsh"],
)
def test_the_tab_key_in_a_real_shell(stage: Stage, argv: tuple[str, ...], setup: str) -> None:
    run = recorded(stage)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        argv, stdin=theirs, stdout=theirs, stderr=theirs, env=shell_environment(stage), start_new_session=True
    ) as shell:
        os.close(theirs)
        try:
            os.write(ours, f" {setup}\n".encode())
            read_until(ours, b"READY ")
            os.write(ours, b"stockade sandbox ex\t")
            read_until(ours, b"ec")
            os.write(ours, b"\n")
            read_until(ours, b"which command?")
            for line, rest in ((f"runs show {run[:-2]}", run[-2:]), ("run x -b wri", "ting"),
                               ("run x -m embedded/smo", "llm2")):  # fmt: skip
                os.write(ours, f"\x15stockade {line}\t".encode())
                read_until(ours, f"{line}{rest}".encode())
        finally:
            os.close(ours)
            shell.kill()


@pytest.mark.host
def test_what_fish_offers(stage: Stage) -> None:
    run = recorded(stage)
    lines = {"sandbox ex": "exec", f"runs show {run[:-2]}": run, "run x -b wri": "writing",
             "run x -m embedded/smo": "embedded/smollm2"}  # fmt: skip
    for line, offer in lines.items():
        script = f"stockade completion fish | source; complete -C 'stockade {line}'"
        ended = subprocess.run(
            ["fish", "-c", script], env=shell_environment(stage), capture_output=True, text=True, check=True
        )
        assert ended.stdout.split()[0] == offer


def read_until(descriptor: int, words: bytes) -> None:
    seen = b""
    while words not in seen:
        data = os.read(descriptor, 4096)
        assert data, seen
        seen += data
