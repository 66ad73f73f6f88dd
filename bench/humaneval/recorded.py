"""Every answer on disk, by what was asked: an arm pays only for questions that no other arm has asked before.

The key is the SHA-256 of messages and sampling, so a bench that was cut goes on where it was, and one whose prompts
were changed asks again.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio

from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest
from stockade.core.ports import Model, OnText


def key_of(request: ModelRequest) -> str:
    return hashlib.sha256(request.model_dump_json(include={"messages", "sampling"}).encode()).hexdigest()


@dataclass
class Answers:
    """The file, and what is in it."""

    path: Path
    known: dict[str, ModelAnswer] = field(default_factory=dict)
    asking: dict[str, anyio.Lock] = field(default_factory=dict)
    """Two arms that ask the same thing at once get the same answer."""

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            try:
                found = json.loads(line)
                self.known[found["key"]] = ModelAnswer.model_validate(found["answer"])
            except (ValueError, KeyError):
                continue  # the line that a cut run was writing

    def add(self, key: str, answer: ModelAnswer, **facts: object) -> None:
        self.known[key] = answer
        with self.path.open("a") as file:
            file.write(json.dumps({"key": key, **facts, "answer": answer.model_dump(mode="json")}) + "\n")


class Offline(Exception):
    """An answer that is not on disk, and nobody to ask."""


@dataclass
class RecordedModel:
    """Implements core.ports.Model for one problem of one arm. `servers` are entered already, and taken in turn."""

    answers: Answers
    servers: Sequence[Model]
    arm: str
    problem: str
    number: int = 0
    asked: int = 0
    """Of a server, not of the disk."""
    info: ModelInfo = field(default_factory=lambda: ModelInfo(name="recorded", provider="bench", context_window=4096))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        key = key_of(request)
        async with self.answers.asking.setdefault(key, anyio.Lock()):
            if (found := self.answers.known.get(key)) is not None:
                return found
            if not self.servers:
                raise Offline(f"{self.arm} {self.problem}")
            answer = await self.servers[self.number % len(self.servers)].ask(request, on_text)
            self.asked += 1
            self.answers.add(key, answer, arm=self.arm, problem=self.problem)
            return answer
