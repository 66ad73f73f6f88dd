"""`python -m tests.attack.blind.page [NUMBER ...]`: docs/security/blind.md from a real run, or some on the screen."""

import signal
import subprocess
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime

from tests.attack.blind import afterwards, folders
from tests.attack.blind.ground import ROOT, Bare, Sealed, ground_of, users
from tests.attack.blind.table import ATTACKS

MODULES = (afterwards, folders)


def late(*_: object) -> None:
    raise TimeoutError


def tried(number: int, kind: str, name: str) -> str:
    """What got through, in words: nothing is `held`."""
    chosen = next(u for u in users() if u.name == name)
    signal.alarm(150)
    signal.signal(signal.SIGALRM, late)
    try:
        with ground_of(Bare if kind == "control" else Sealed, chosen) as ground:
            got = ATTACKS[number - 1].made(ground)
    except BaseException:  # noqa: BLE001 a page of results: what broke is one of them
        return "ERROR " + traceback.format_exc()[-1200:]
    if kind == "control":
        return "yes" if got else "NO"
    words = "; ".join(dict.fromkeys(got))
    return "held" if not got else "**through**: " + words[:300].replace("|", "/").replace("\n", " ")


def main(numbers: list[int]) -> None:
    wanted = numbers or list(range(1, len(ATTACKS) + 1))
    jobs = [(n, kind, u.name) for n in wanted for u in users() for kind in ("control", "sealed")]
    with ProcessPoolExecutor(2) as pool:
        futures = {pool.submit(tried, *job): job for job in jobs}
        results = {}
        for future in as_completed(futures):
            job = futures[future]
            results[job] = future.result()
            print(*job, ATTACKS[job[0] - 1].made.__name__, results[job], flush=True)
    if not numbers:
        write(results)


def write(results: dict[tuple[int, str, str], str]) -> None:
    order = sorted(range(1, len(ATTACKS) + 1), key=lambda n: (ATTACKS[n - 1].promise, n))
    rows = []
    for n in order:
        a = ATTACKS[n - 1]
        controls = "; ".join(f"{u.name}: {results[n, 'control', u.name]}" for u in users())
        cells = [str(a.promise), f"{n}. {a.name}", a.judged, controls, *[results[n, "sealed", u.name] for u in users()]]
        rows.append("| " + " | ".join(c.replace("\n", " ") for c in cells) + " |")
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    head = f"# Sixty attacks from SECURITY.md alone\n\n{datetime.now(UTC):%d %B %Y}, at {commit.strip()}.\n\n"
    head += (
        "| promise | attack | got through when | control fired | as root | ordinary user |\n|---|---|---|---|---|---|\n"
    )
    (ROOT / "docs/security/blind.md").write_text(head + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1:]])
