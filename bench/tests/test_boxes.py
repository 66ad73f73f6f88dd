"""The harness of bench/sandbox.py: what it counts, and a crowd of two."""

import os
import subprocess
from pathlib import Path

import pytest

from bench.boxes import COMMANDS, costs, drawn_costs, options
from bench.crowd import measure, pss_bytes
from bench.processes import descendants
from bench.ways import Fresh, OpenBash, field, tree_s

pytestmark = pytest.mark.anyio


class Steady:
    """Takes `wall_s` for each command, and `other_s` in a process that lives on."""

    def __init__(self, name: str, wall_s: float, other_s: float) -> None:
        self.name = name
        self.ran: list[str] = []
        self._wall_s = wall_s
        self._other_s = other_s

    async def open(self) -> None: ...

    async def run(self, command: str) -> tuple[float, float]:
        self.ran.append(command)
        return self._wall_s, 0.001

    def others_s(self) -> float:
        return len(self.ran) * self._other_s

    async def close(self) -> None: ...


async def test_costs_are_over_the_first_way() -> None:
    least, other, slow = Steady("least", 0.001, 0.0), Steady("other", 0.003, 0.002), Steady("slow", 0.1, 0.0)
    found = await costs([least, other, slow], 20, 0.0)
    assert [(one.way, one.command) for one in found[:3]] == [(name, COMMANDS[0]) for name in ("least", "other", "slow")]
    second = found[1]
    assert second.times == 20
    assert [second.median_ms, second.over_median_ms, second.cpu_ms] == pytest.approx([3, 2, 3])
    assert found[2].times == 2
    line = drawn_costs(found, "title").splitlines()[3]
    assert [cell.strip() for cell in line.split("|")[1:-1]] == [
        "other",
        *COMMANDS[:1],
        "3.00",
        "3.00",
        "3.00",
        "+2.00",
        "+2.00",
    ]


async def test_real_ways_run_commands() -> None:
    for way in (OpenBash(), Fresh("bash -c", ["bash", "-c"])):
        await way.open()
        wall, cpu = await way.run("echo 1")
        assert wall > 0
        assert cpu >= 0
        assert way.others_s() >= 0
        await way.close()


def test_the_open_bash_comes_first(tmp_path: Path) -> None:
    names = [way.name for way in field(["bubblewrap", "docker"], tmp_path, peers=True)]
    assert names[0] == "open bash"
    assert {"stockade bubblewrap", "stockade docker", "docker exec", "swe-rex 1.4.0", "microbots 0.0.21"} < set(names)


async def test_a_crowd_of_two(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    found = await measure(2, tmp_path)
    assert (found.answered, found.left) == (2, 0)
    assert found.processes >= 2 * 3
    assert 0 < found.sandboxes_mb < 100


def test_memory_and_family_of_processes() -> None:
    assert pss_bytes(os.getpid()) > 1 << 20
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        assert child.pid in descendants(os.getpid())
        assert tree_s(child.pid) >= 0
        child.kill()
    assert pss_bytes(child.pid) == 0
    assert child.pid not in descendants(os.getpid())


def test_options() -> None:
    assert options(["--count", "3", "--no-peers"]).count == 3
