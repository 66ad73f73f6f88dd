"""What it takes to start a reading sandbox, and to read a small PDF and a page in one: `python -m bench.reading`."""

import tempfile
import time
from pathlib import Path
from statistics import median

import anyio

from stockade.tools.documents import Reader, Wanted
from stockade_sandbox.reading import ReadingRoom

ROUNDS = 9
PAGE = b"<html><body><article><h1>Tea</h1>" + b"<p>The kettle is filled and set on the stove.</p>" * 200 + b"</article>"
TEXT = b"a line of text\n" * 100


async def start(room: ReadingRoom) -> None:
    async with room.open():
        pass


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        room = ReadingRoom(Path(folder))
        reader = Reader(room)
        for name, work in (
            ("start and end", lambda: start(room)),
            ("text, 1.5 kB", lambda: reader.read(TEXT, Wanted())),
            ("web page, 10 kB", lambda: reader.read(PAGE, Wanted(type="html", main=True))),
        ):
            taken = []
            for _ in range(ROUNDS):
                begun = time.perf_counter()
                await work()
                taken.append(time.perf_counter() - begun)
            print(f"{name:16} {median(taken) * 1000:6.0f} ms (median of {ROUNDS}; least {min(taken) * 1000:.0f})")


if __name__ == "__main__":
    anyio.run(main)
