"""The coder's own loop, on the same ports and the same record as every other run.

    task ─► write ─► run ─► passed? ─► done
              ▲       │ no
              └─ mend ┘      after a few repairs, or when they change nothing: forget it all and write anew

Debugging decays: after two or three repairs a model turns in circles (arXiv 2506.18403), so the conversation is thrown
away but for the task, which is in every question.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import anyio

from stockade.coder import prompts
from stockade.coder.draft import Draft, read
from stockade.coder.executor import NO_NETWORK, Executor
from stockade.coder.work import Attempt, Explain, Plan, Result, Verdict, best, by_error_handler
from stockade.core.actions import Action, Answer, Observation, Step, WriteFile
from stockade.core.budget import Account
from stockade.core.errors import ContextExceeded, ModelFailed, UnreadableAnswer
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    AnswerUnreadable,
    ModelAnswered,
    Nudged,
    RunEvent,
    RunStarted,
    StopReason,
)
from stockade.core.messages import Message, ModelAnswer, ModelRequest, Sampling
from stockade.loop.act import Actor
from stockade.loop.ending import Ending
from stockade.loop.parts import Parts
from stockade.loop.record import Record
from stockade.tools.code.trees import statements

FRESH_TEMPERATURE = 0.8
BOUNDS: Mapping[str, StopReason] = {"turns": "turns", "time": "time", "tokens": "tokens", "cost": "cost"}
_OURS = ("repair", "fresh start")
_LAST_STEP = 100
"""Of the program's delivery: behind all steps of an attempt."""


@dataclass(slots=True)
class Coder:
    """One task. `drive` is what loop.run calls when sandbox and model are there; `attempts` grow while it works.

    `target` is where the program goes in the end, inside the sandbox; None: nowhere. `examples` were given beside the
    task; `around` is what the model is told of where the program runs.
    """

    plan: Plan
    executor: Executor
    target: str | None = None
    examples: tuple[str, ...] = ()
    around: str = ""
    explain: Explain = by_error_handler
    attempts: list[Attempt] = field(default_factory=list)

    async def drive(self, started: RunStarted, parts: Parts, record: Record, account: Account) -> Ending:
        """Until a program passes or the plan or the budget is at its end."""
        work = _Work(self, started, parts, record, account)
        with anyio.move_on_after(account.seconds_left(parts.clock.now())) as deadline:
            parts.pause.watch(deadline)
            return await work.until_end()
        assert deadline.cancelled_caught
        return self.ended("time", f"time: {started.budget.timeout_s:g} s are over")

    def result(self, error: str = "") -> Result:
        """The best there was so far. `error`: why it ended, where no attempt says it."""
        found = best(self.attempts)
        if found is None:
            last = self.attempts[-1].verdict.words if self.attempts else ""
            return Result(error=error or last or "there is no program", attempts=tuple(self.attempts))
        passed = found.verdict.passed
        return Result(
            status="success" if passed else "error",
            code=found.code,
            stdout=found.stdout,
            error="" if passed else error or found.verdict.words,
            attempts=tuple(self.attempts),
        )

    def ended(self, reason: StopReason, detail: str) -> Ending:
        """Before a program passed, with the best there was."""
        found = best(self.attempts)
        verified = False if self.executor.job.has_checks else None
        return Ending("stopped", reason, detail, found.code if found is not None else None, verified)


@dataclass(slots=True)
class _Work:
    """Round by round. `streak` holds the attempts since the last fresh start, one a round."""

    coder: Coder
    started: RunStarted
    parts: Parts
    record: Record
    account: Account
    streak: list[Attempt] = field(default_factory=list)
    rounds: int = 0
    starts: int = 0

    async def until_end(self) -> Ending:
        plan = self.coder.plan
        while self.rounds < plan.most_rounds:
            await self.parts.pause.passed(self.record, self.parts.clock)
            if self.parts.pause.stopped is not None:
                return self.coder.ended("user", self.parts.pause.stopped)
            if (bound := self.account.exhausted(self._now())) is not None:
                return self.coder.ended(BOUNDS[bound.split(":")[0]], bound)
            await self.parts.pause.said(self.record, self.parts.clock, self.record.state.turns + 1)
            done = await self._round()
            self.rounds += 1
            passed = next((one for one in done if one.verdict.passed), None)
            if passed is not None:
                return await self._deliver(passed)
            await self._go_on(best(done) or done[0])
        return self._given_up()

    async def _round(self) -> list[Attempt]:
        """One question to the model, or several of the same kind at once; every program in it is run, in order."""
        requests = [self._request(candidate) for candidate in range(self.coder.plan.candidates)]
        try:
            answers = await self._ask(requests)
        except ContextExceeded:
            if not self.streak:
                raise
            await self._begin_anew("The conversation does not fit the model any more.")
            answers = await self._ask([self._request(candidate) for candidate in range(self.coder.plan.candidates)])
        done: list[Attempt] = []
        for answer in answers:
            done.append(await self._attempt(answer))
            self.coder.attempts.append(done[-1])
        return done

    async def _ask(self, requests: Sequence[ModelRequest]) -> list[ModelAnswer]:
        """Those that came. The first failure is raised when none did."""
        on_text = self.parts.on_text if len(requests) == 1 else None
        answers: dict[int, ModelAnswer] = {}
        failures: list[ModelFailed] = []

        async def one(number: int, request: ModelRequest) -> None:
            try:
                answers[number] = await self.parts.model.ask(request, on_text)
            except ModelFailed as error:
                failures.append(error)

        async with anyio.create_task_group() as group:
            for number, request in enumerate(requests):
                group.start_soon(one, number, request)
        if not answers:
            raise failures[0]
        return [answers[number] for number in sorted(answers)]

    def _request(self, candidate: int) -> ModelRequest:
        coder, executor = self.coder, self.coder.executor
        said = [nudge.text for nudge in self.record.state.nudges if nudge.why not in _OURS]
        task = prompts.brief(self.started.task, coder.examples, executor.job.tests, executor.signature)
        words = "\n\n".join(part for part in (task, coder.around, *said) if part)
        opening = prompts.opening(words, wants_example=not executor.job.has_checks)
        messages = list(opening)
        for attempt in self.streak:
            if not attempt.code:  # told that its form was wrong, a small model answers with that; it is asked again
                continue
            words = self.coder.explain(attempt)
            messages.append(Message(role="assistant", content=attempt.answer))
            messages.append(Message(role="user", content=prompts.repair(words)))
        hidden = self.parts.redactor.text
        cleaned = tuple(one.model_copy(update={"content": hidden(one.content)}) for one in messages)
        return ModelRequest(messages=cleaned, sampling=self._sampling(candidate))

    def _sampling(self, candidate: int) -> Sampling:
        """The first answer as it was asked for. A repair at temperature 0 is the same program again (38 of 40 times
        with the 1.5B model), so each next one is warmer; another start is another draw.
        """
        base = self.started.sampling
        if not self.rounds and not candidate:
            return base
        warm = min(FRESH_TEMPERATURE, 0.2 + 0.2 * len(self.streak)) if self.streak and not candidate else None
        temperature = max(base.temperature or 0.0, FRESH_TEMPERATURE if warm is None else warm)
        seed = (base.seed or 0) + 1000 * self.rounds + candidate
        return base.model_copy(update={"temperature": temperature, "seed": seed})

    async def _attempt(self, answer: ModelAnswer) -> Attempt:
        """The program of one answer, run; everything on record before it happens."""
        turn = self.record.state.turns + 1
        answered = ModelAnswered(at=self._now(), turn=turn, answer=answer)
        try:
            draft = read(answer)
        except UnreadableAnswer as error:
            unreadable = self.record.state.unreadable + 1
            bad = AnswerUnreadable(at=self._now(), turn=turn, attempt=unreadable, message=error.message)
            await self.record.add(answered, bad)
            verdict = Verdict(passed=False, words=error.message)
            return Attempt(number=turn, start=self.starts, answer=answer.content, verdict=verdict)
        actions = self.coder.executor.actions(turn, draft)
        steps = tuple(Step(action=action) for action in actions.values())
        understood = AnswerUnderstood(at=self._now(), turn=turn, answer=Answer(steps=steps))
        seen = await self._act(turn, draft, actions, (answered, understood))
        attempt = self.coder.executor.read(turn, self.starts, draft, seen)
        return attempt.model_copy(update={"answer": answer.content})

    async def _act(
        self, turn: int, draft: Draft, actions: Mapping[str, Action], first: tuple[RunEvent, ...]
    ) -> dict[str, Observation]:
        """As far as it went well; `first` goes on record with the first action."""
        seen: dict[str, Observation] = {}
        for number, (purpose, action) in enumerate(actions.items()):
            seen[purpose] = await self._do(turn, number, action, first)
            first = ()
            if not self.coder.executor.goes_on(purpose, draft, seen[purpose]):
                break
        return seen

    async def _do(self, turn: int, number: int, action: Action, before: tuple[RunEvent, ...] = ()) -> Observation:
        begun = ActionStarted(at=self._now(), turn=turn, step=number, action=Step(action=action))
        await self.record.add(*before, begun)
        actor = Actor(self.parts.sandbox, self.parts.approver, self.started.policy.limits.command_timeout_s)
        observation = await actor.do(action, self.account.seconds_left(self._now()))
        await self.record.add(ActionFinished(at=self._now(), turn=turn, step=number, observation=observation))
        return observation

    async def _go_on(self, attempt: Attempt) -> None:
        """Mend it next, or begin anew; what the model will be told is on record."""
        plan = self.coder.plan
        again = any(_same(attempt.code, one.code) for one in self.streak if attempt.code)
        self.streak.append(attempt)
        if self.rounds >= plan.most_rounds:
            return
        if plan.fresh_starts and (again or len(self.streak) > plan.repairs):
            why = "The same program came back" if again else f"{len(self.streak)} programs in a row failed"
            await self._begin_anew(f"{why}.")
            return
        words = self.coder.explain(attempt)
        await self.record.add(Nudged(at=self._now(), turn=self.record.state.turns, why="repair", text=words))

    async def _begin_anew(self, why: str) -> None:
        self.streak.clear()
        self.starts += 1
        words = f"{why} All of it is forgotten; the task is asked anew."
        await self.record.add(Nudged(at=self._now(), turn=self.record.state.turns, why="fresh start", text=words))

    async def _deliver(self, attempt: Attempt) -> Ending:
        if self.coder.target is not None:
            write = WriteFile(path=self.coder.target, content=attempt.code)
            written = await self._do(attempt.number, _LAST_STEP, write)
            if written.kind != "written":
                return self.coder.ended("check_failed", f"{self.coder.target} could not be written")
        checks = self.coder.executor.job.has_checks
        words = f"{attempt.verdict.checks_passed} checks passed" if checks else "it ran; there were no checks"
        return Ending("done", "finish", words, attempt.code, verified=True if checks else None)

    def _given_up(self) -> Ending:
        found = best(self.coder.attempts)
        if found is None:
            words = f"no program in {len(self.coder.attempts)} answers"
            return Ending(
                "stopped", "unreadable", words, verified=False if self.coder.executor.job.has_checks else None
            )
        verdict = found.verdict
        checks = f", the best passes {verdict.checks_passed} of {verdict.checks} checks" if verdict.checks else ""
        words = f"{len(self.coder.attempts)} attempts failed{checks}: {verdict.words.splitlines()[0]}"
        if NO_NETWORK in verdict.words:
            words += " (libraries need --net allow=pypi.org,files.pythonhosted.org)"
        return Ending("done", "check_failed", words, found.code, verified=False)

    def _now(self) -> float:
        return self.parts.clock.now()


def _same(one: str, other: str) -> bool:
    """Whether two programs differ in nothing but layout and comments."""
    first, second = statements(one), statements(other)
    if first is None or second is None:
        return one.strip() == other.strip()
    return [ast.dump(node) for node in first] == [ast.dump(node) for node in second]
