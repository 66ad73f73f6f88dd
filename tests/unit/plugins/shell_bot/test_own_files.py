"""The files by which a bot rules itself: what is taken, and what is refused with words that it can act on."""

import json
from collections.abc import Sequence

import pytest

from stockade.core.events import Autonomy, SelfConfigChanged
from stockade.core.messages import Sampling
from stockade.core.ports import ExecResult
from stockade.plugins.shell_bot.bot import OwnFiles, over
from stockade.testing import MemorySandbox

pytestmark = pytest.mark.anyio
ALL = Autonomy()


class Files(MemorySandbox):
    """Knows files by path, and exit statuses of those that cannot be read."""

    def __init__(self, files: dict[str, bytes | str], broken: dict[str, int] | None = None) -> None:
        super().__init__()
        self.files = {
            f"/workspace/{name}": data.encode() if isinstance(data, str) else data for name, data in files.items()
        }
        self.broken = broken or {}

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        name = argv[-1].removeprefix("/workspace/")
        if name in self.broken:
            return ExecResult(exit_code=self.broken[name], stdout=b"", stderr=b"")
        data = self.files.get(argv[-1])
        if data is None:
            return ExecResult(exit_code=44, stdout=b"", stderr=b"")
        cut = max(0, len(data) - max_output_bytes)
        return ExecResult(exit_code=0, stdout=data[:max_output_bytes], stderr=b"", truncated_bytes=cut)


async def read(
    files: dict[str, bytes | str], before: SelfConfigChanged | None = None, may: Autonomy = ALL,
    window: int | None = None, broken: dict[str, int] | None = None,
) -> SelfConfigChanged:  # fmt: skip
    return await OwnFiles(Files(files, broken), "/workspace", may, window).read(3, 10.0, before)


async def test_nothing_there_is_nothing_set() -> None:
    assert await read({}) == SelfConfigChanged(at=10.0, turn=3)


async def test_all_three_are_taken() -> None:
    config = '{"temperature": 0.5, "top_k": 10, "max_tokens": 300}'
    found = await read({"goal": " learn C \n", "system.md": "Be brief.\n", "config.json": config})
    assert (found.goal, found.prompt) == ("learn C", "Be brief.")
    assert found.sampling == Sampling(temperature=0.5, top_k=10, max_tokens=300)
    assert found.refused == ()


async def test_each_can_be_switched_off() -> None:
    files: dict[str, bytes | str] = {"goal": "g", "system.md": "p", "config.json": '{"temperature": 0.5}'}
    found = await read(files, may=Autonomy(goal=False, prompt=False, sampling=False))
    assert found == SelfConfigChanged(at=10.0, turn=3)


@pytest.mark.parametrize("config", ['{"stream": true}', '{"tfs_z": 1, "logprobs": true, "model": "x"}', "{}", " "])
async def test_what_pocket_asi_knows_and_has_no_effect_is_no_error(config: str) -> None:
    found = await read({"config.json": config})
    assert (found.sampling, found.refused) == (Sampling(), ())


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ('{"temperature": 9}', "temperature: input should be less than or equal to 5"),
        ('{"temperature": "hot"}', "temperature: input should be a valid number"),
        ('{"temprature": 1}', "there is no setting 'temprature'"),
        ('{"max_tokens": 1}', "answer_tokens: input should be greater than or equal to 64"),
        ("[1]", "it is no object"),
        ("temperature: 1", "it is not JSON"),
        ("[" * 50_000, "it is not JSON"),
        ("x" * 70_000, "it is larger than"),
        (b'{"temperature": \xff}', "it is not JSON"),
        ('{"temperature": NaN}', "temperature"),
    ],
)
async def test_an_invalid_config_is_refused_whole_and_the_last_one_stays(config: str | bytes, words: str) -> None:
    before = SelfConfigChanged(at=1.0, turn=1, sampling=Sampling(temperature=0.3))
    found = await read({"config.json": config}, before)
    assert found.sampling == before.sampling
    assert len(found.refused) == 1
    assert words in found.refused[0]
    assert len(found.refused[0]) < 500


@pytest.mark.parametrize(
    ("data", "words"), [(b"\xff\xfe", "not UTF-8"), (b"x" * 2001, "2000 is the most"), (b"x" * 90_000, "larger than")]
)
async def test_a_goal_that_is_no_goal_is_refused(data: bytes, words: str) -> None:
    found = await read({"goal": data}, SelfConfigChanged(at=1.0, turn=1, goal="old"))
    assert found.goal == "old"
    assert words in found.refused[0]


@pytest.mark.parametrize(("status", "words"), [(47, "no plain file"), (46, "cannot be read"), (137, "cannot be read")])
async def test_what_cannot_be_read_is_refused(status: int, words: str) -> None:
    found = await read({}, SelfConfigChanged(at=1.0, turn=1, prompt="old"), broken={"system.md": status})
    assert (found.prompt, len(found.refused)) == ("old", 1)
    assert words in found.refused[0]


async def test_the_prompt_leaves_room_in_the_window() -> None:
    found = await read({"system.md": "x" * 3000}, window=2048)
    assert found.prompt is None
    assert "1536 is the most" in found.refused[0]
    assert (await read({"system.md": "x" * 3000}, window=8192)).prompt == "x" * 3000


async def test_an_emptied_file_is_as_good_as_none() -> None:
    found = await read({"goal": "  \n", "system.md": ""}, SelfConfigChanged(at=1.0, turn=1, goal="old", prompt="old"))
    assert (found.goal, found.prompt) == (None, None)


async def test_controls_of_a_terminal_do_not_get_into_the_prompt() -> None:
    assert (await read({"goal": "a\x1b[2Jb\tc"})).goal == "a[2Jb\tc"


def test_what_is_set_goes_over_what_was() -> None:
    base = Sampling(temperature=0.0, top_p=0.9, max_tokens=1024)
    assert over(base, Sampling(temperature=1.0, seed=4)) == Sampling(
        temperature=1.0, top_p=0.9, max_tokens=1024, seed=4
    )


async def test_the_event_makes_the_way_through_json() -> None:
    found = await read({"goal": 'say "hi" `now`', "config.json": json.dumps({"temperature": 0.1})})
    assert SelfConfigChanged.model_validate_json(found.model_dump_json()) == found
