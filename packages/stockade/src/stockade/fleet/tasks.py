"""The tasks of a batch: a JSONL or CSV file, a folder of task folders, or values from Python; all checked before any
of them starts.
"""

import csv
import fnmatch
import functools
import hashlib
import io
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from os.path import expanduser, isdir
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from stockade.bots.spec import BotSpec
from stockade.core.data import Data, first_refused
from stockade.core.errors import UsageError, did_you_mean
from stockade.core.events import Checks
from stockade.core.settings import listed
from stockade.paths import read_regular
from stockade.runtime.bots import find_bot, with_defaults
from stockade.runtime.policy import image_from, make_policy
from stockade.runtime.settings import FOLDER_MODES
from stockade.runtime.spec import RunSpec

MAX_FILE_BYTES = 1 << 30
_MAX_SEED = 2**32
_NOT_HASHED = {"store", "keep_warm_s"}
_TASK_FILES = ("task.md", "instruction.md")
Texts = Annotated[tuple[str, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
                  BeforeValidator(listed)]  # fmt: skip


class Limits(Data):
    """Of one task; what is not set here is as on the command line."""

    max_turns: int | None = Field(default=None, ge=0)
    timeout: float | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=0)
    max_cost: float | None = Field(default=None, ge=0)


class Task(Data):
    """A line of a batch. `files` are copied in, as by --copy; paths are relative to the file that names them."""

    id: str = Field(pattern=r"^[^\s/][^\n\r\t]{0,199}$")
    task: str = Field(min_length=1)
    folder: str | None = None
    files: Texts = ()
    image: str | None = None
    bot: str | None = None
    model: str | None = None
    check: Checks = ()
    score: str | None = None
    protect: Texts = ()
    limits: Limits = Limits()
    tags: Texts = ()


@dataclass(frozen=True, slots=True)
class Item:
    """One run that is asked for. `digest`: of the task and of all settings of its run."""

    task: Task
    spec: RunSpec
    digest: str
    epoch: int = 1

    @property
    def key(self) -> tuple[str, int, str]:
        return self.task.id, self.epoch, self.digest


@dataclass(frozen=True, slots=True)
class Selection:
    """Which of the tasks, in which order, how often."""

    limit: int | None = None
    filters: tuple[str, ...] = ()
    shuffle: bool = False
    epochs: int = 1

    def of(self, tasks: Iterable[Task], seed: int) -> list[Task]:
        """A filter is a pattern of the id, or `tag=NAME`; one of several is enough."""
        found = [one for one in tasks if not self.filters or any(_fits(one, text) for text in self.filters)]
        if self.shuffle:
            random.Random(seed).shuffle(found)
        return found[: self.limit]


def _fits(task: Task, text: str) -> bool:
    tag = text.removeprefix("tag=")
    return tag in task.tags if tag != text else fnmatch.fnmatchcase(task.id, text)


def read_tasks(source: Path | Iterable[Mapping[str, Any]], base: RunSpec, select: Selection) -> list[Item]:
    """UsageError, with the place, for the first that is wrong; nothing has started then."""
    where = Path.cwd()
    if isinstance(source, Path):
        where = (source if isdir(source) else source.parent).absolute()
        rows = _of_folder(source) if isdir(source) else _of_csv(source) if source.suffix == ".csv" else _lines(source)
    else:
        rows = ((f"task {number}", dict(row)) for number, row in enumerate(source, 1))
    tasks, places = list[Task](), dict[str, str]()
    for place, row in rows:
        task = _task(place, row)
        if task.id in places:
            raise UsageError(f"{place}: the id {task.id!r} is that of {places[task.id]} already", "give each its own")
        places[task.id] = place
        tasks.append(task)
    if not tasks:
        raise UsageError(f"there is no task in {source}", 'a line is {"id": "one", "task": "..."}')
    chosen = select.of(tasks, base.seed or 0)
    if not chosen:
        raise UsageError("no task fits the filter", "--filter takes a pattern of the id, or tag=NAME")
    bots = functools.cache(find_bot)
    specs = [_spec(places[one.id], one, base, where, bots) for one in chosen]
    made = [(one, spec, bots(spec.bot)) for one, spec in zip(chosen, specs, strict=True)]
    return [_item(*one, epoch) for epoch in range(1, select.epochs + 1) for one in made]


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(_text(path).split("\n"), 1):  # not splitlines: JSON may hold U+2028 as it is
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        yield place, _object(place, line)


def _object(place: str, text: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place}: this is no JSON: {error}", "one JSON object a line") from None
    if not isinstance(row, dict):
        raise UsageError(f"{place}: this is no JSON object", 'a line is {"id": "one", "task": "..."}')
    return row


def _text(path: Path) -> str:
    try:
        return read_regular(path, MAX_FILE_BYTES).decode("utf-8-sig")  # a spreadsheet's CSV begins with the mark
    except OSError as error:
        raise UsageError(f"the tasks {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"the tasks {path} are not UTF-8 text") from None


def _of_csv(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Columns are keys, `limits.max_turns` among them; an empty cell is a key that is not there."""
    csv.field_size_limit(MAX_FILE_BYTES)
    reader = csv.DictReader(io.StringIO(_text(path), newline=""))
    for cells in reader:
        place, row = f"{path}, line {reader.line_num}", dict[str, Any]()
        if None in cells or None in cells.values():
            raise UsageError(f"{place}: it has not as many cells as the first line", "quote cells that hold commas")
        for key, text in cells.items():
            if text:
                outer, _, inner = key.strip().partition(".")
                if inner and isinstance(limits := row.setdefault(outer, {}), dict):
                    limits[inner] = text
                else:
                    row[outer] = text
        yield place, row


def _of_folder(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each folder in it is a task by its name: `task.json` with the keys of a line, or `task.md` with the words; what
    is in its `folder` is the folder.
    """
    for one in sorted(path.iterdir()):
        if not one.is_dir() or one.name.startswith("."):
            continue
        row: dict[str, Any] = {"id": one.name}
        if (one / "folder").is_dir():
            row["folder"] = f"{one.name}/folder"
        if (words := next((one / name for name in _TASK_FILES if (one / name).is_file()), None)) is not None:
            row["task"] = _text(words)
        if (one / "task.json").is_file():
            row |= _object(str(one / "task.json"), _text(one / "task.json"))
        yield str(one), row


def _task(place: str, row: Mapping[str, Any]) -> Task:
    try:
        return Task.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key, model = ".".join(map(str, first["loc"])), Limits if len(first["loc"]) > 1 else Task
        if first["type"] == "extra_forbidden":
            known = list(model.model_fields)
            hint = did_you_mean(str(first["loc"][-1]), known, f"the keys are {', '.join(known)}")
            raise UsageError(f"{place}: there is no key {key!r}", hint) from None
        if first["type"] == "missing":
            raise UsageError(f"{place}: the key {key!r} is missing") from None
        raise UsageError(f"{place}: {key}: {first['msg'].removeprefix('Value error, ')}") from None


def _spec(place: str, task: Task, base: RunSpec, where: Path, bots: Callable[[str], BotSpec]) -> RunSpec:
    """The settings of the command line with what the task says, and else what its bot wants."""
    bot = str(where / expanduser(task.bot)) if task.bot and task.bot.endswith(".toml") else task.bot
    said: dict[str, Any] = {
        "task": task.task, "image": image_from(task.image, where), "bot": bot, "model": task.model, "check": task.check,
        "score": task.score,
        "protect": task.protect, **task.limits.model_dump(),
        "folder": (_from(where, task.folder, FOLDER_MODES),) if task.folder else (),
        "copy": tuple(_from(where, one) for one in task.files),
        "program_model": task.model or base.program_model,
    }  # fmt: skip
    said = {key: value for key, value in said.items() if value not in (None, ())}
    try:
        spec = RunSpec.model_validate({**base.model_dump(by_alias=True, exclude_unset=True), **said})
        spec = with_defaults(spec, bots(spec.bot))
        if (spec.best_of or 1) > 1 and not spec.check:
            raise UsageError("of several candidates the check picks one, and there is none", "--check CMD")
        for rule in make_policy(spec, "overlay").folders:
            if not isdir(rule.host):
                raise UsageError(f"there is no folder {rule.host}", "paths are relative to the file of the tasks")
    except ValidationError as error:
        key, words = first_refused(error, RunSpec)
        raise UsageError(f"{place}: {key}{words}") from None
    except UsageError as error:
        raise UsageError(f"{place}: {error.message}", error.hint) from None
    return spec


def _from(where: Path, text: str, modes: Iterable[str] = ()) -> str:
    """PATH[:MODE], or PATH[:DEST], with the path as seen from here."""
    path, colon, rest = text.rpartition(":") if not modes or text.rpartition(":")[2] in modes else ("", "", text)
    if not colon:
        path, rest = rest, ""
    return f"{where / expanduser(path)}{colon}{rest}"


def _item(task: Task, spec: RunSpec, bot: BotSpec, epoch: int) -> Item:
    """With a seed, each epoch has the next one: the same would give the same run. A bot's file may change."""
    if spec.seed is not None:
        spec = spec.model_copy(update={"seed": (spec.seed + epoch - 1) % _MAX_SEED})
    return Item(task, spec, _digest(task, spec, *([bot] if bot.file else [])), epoch)


def _digest(*values: BaseModel) -> str:
    dumped = [one.model_dump(mode="json", exclude=_NOT_HASHED) for one in values]
    return hashlib.sha256(json.dumps(dumped, sort_keys=True).encode()).hexdigest()[:16]
