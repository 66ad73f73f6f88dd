"""The coder's own loop, on the same ports and the same record as every other run.

    task ─► write ─► run ─► passed? ─► done
              ▲       │ no
              └─ mend ┘      after a few repairs, or when they change nothing: forget it all and write anew

Debugging decays: after two or three repairs a model turns in circles (arXiv 2506.18403), so the conversation is thrown
away but for the task, which is in every question (prompts.py). All that is known is on record and folded from there
(`progress_of`), so a run that was cut goes on: what the model answered is not asked again, and an attempt that was cut
is run again from its answer, as each has a workspace of its own.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from stockade.core.actions import Answer, Finish, Observation, Refused, Step, Unknown, WriteFile
from stockade.core.errors import ContextExceeded, SandboxFailed, UnreadableAnswer
from stockade.core.events import (
    ActionFinished,
    AnswerUnderstood,
    AnswerUnreadable,
    CheckFinished,
    MessageInjected,
    ModelAnswered,
    RunEvent,
    RunFinished,
    Status,
    StopReason,
)
from stockade.core.messages import ModelAnswer, ModelRequest
from stockade.extend import Bot, EndedByHook, Ending, RunContext, describe
from stockade.plugins.coder.answers import Draft, read
from stockade.plugins.coder.executor import NO_NETWORK, Executor
from stockade.plugins.coder.program import statements
from stockade.plugins.coder.prompts import brief, conversation, is_rewrite, sampling, told
from stockade.plugins.coder.work import Attempt, Explain, Plan, Result, Verdict, best, by_error_handler

REPAIR, REWRITE, FRESH_START = "repair", "rewrite", "fresh start"
"""What the next question does with what failed: shows it, tells what came of it, or leaves it out."""
SENT_BACK = "The program passes its checks, and is not accepted."
MAX_CHECK_CHARS = 2000
LAST_STEP = 100
"""Of the program's delivery: behind all steps of an attempt."""


@dataclass(slots=True)
class Progress:
    """`streak` holds the attempts since the last fresh start, one a round. Of the round that is under way: what the
    model `answered`; `sent_back`: what the user's check or a hook said of a program that passed.
    """

    attempts: list[Attempt] = field(default_factory=list)
    streak: list[Attempt] = field(default_factory=list)
    rounds: int = 0
    starts: int = 0
    answered: ModelAnswered | None = None
    sent_back: str = ""

    @property
    def done(self) -> Attempt | None:
        """The attempt of the round that is under way."""
        last = self.attempts[-1] if self.attempts and self.answered else None
        return last if last and self.answered and last.number == self.answered.turn else None

    def close(self) -> Attempt:
        """The round is over, and its attempt in the streak. One that passed was sent back: it is shown again, and what
        was tried before it is over.
        """
        last = self.attempts[-1]
        if last.verdict.passed:
            back = last.verdict.model_copy(update={"passed": False, "words": self.sent_back or SENT_BACK})
            last = self.attempts[-1] = last.model_copy(update={"verdict": back})
            self.streak.clear()
        self.streak.append(last)
        self.rounds += 1
        self.answered, self.sent_back = None, ""
        return last

    def begin_anew(self) -> None:
        self.streak.clear()
        self.starts += 1


def progress_of(history: Sequence[RunEvent], executor: Executor) -> Progress:
    """What is on record of it. `executor` is asked what observations mean, and stays as it is."""
    fold = Fold(replace(executor, _ready=set(), _begun=False))
    for event in history:
        fold.apply(event)
    return fold.progress


@dataclass(slots=True)
class Fold:
    """Of the events of a run into what is known of its attempts."""

    executor: Executor
    progress: Progress = field(default_factory=Progress)
    purposes: tuple[str, ...] = ()
    seen: dict[str, Observation] = field(default_factory=dict)

    def apply(self, event: RunEvent) -> None:
        now = self.progress
        match event:
            case ModelAnswered():
                now.answered = event
            case AnswerUnreadable(turn=turn, message=message):
                now.attempts.append(unreadable(turn, now.starts, self._answer().content, message))
            case AnswerUnderstood():
                self.seen = {}
                self.purposes = tuple(step.comment or "" for step in event.answer.steps)
            case ActionFinished(step=step, observation=observation) if step < len(self.purposes):
                self._observed(event.turn, self.purposes[step], observation)
            case MessageInjected(source="repair" | "rewrite") if now.done:
                now.close()
            case MessageInjected(source="fresh start"):
                if now.done:
                    now.close()
                now.begin_anew()
            case MessageInjected(text=text) if now.done and now.done.verdict.passed:
                now.sent_back = f"{now.sent_back}\n{text}".strip()
            case CheckFinished(passed=False) if now.done and now.done.verdict.passed:
                now.sent_back = failure(event)
            case RunFinished(reason="check_failed") if now.done:
                now.close()
            case _:
                pass

    def _observed(self, turn: int, purpose: str, observation: Observation) -> None:
        if isinstance(observation, Unknown):  # it was cut there
            return
        self.seen[purpose] = observation
        draft = read(self._answer())
        try:
            over = not self.executor.goes_on(purpose, draft, observation)
        except SandboxFailed:  # the machine's own failure ends the run, not the attempt
            over = False
        if over or purpose == self.purposes[-1]:
            said = self._answer().content
            self.progress.attempts.append(self.executor.read(turn, self.progress.starts, draft, self.seen, said))

    def _answer(self) -> ModelAnswer:
        assert self.progress.answered is not None
        return self.progress.answered.answer


def unreadable(turn: int, start: int, answer: str, message: str) -> Attempt:
    """The attempt of an answer without a program."""
    return Attempt(number=turn, start=start, answer=answer, verdict=Verdict(passed=False, words=message))


def failure(check: CheckFinished) -> str:
    """Of the user's, as the model is told of it."""
    said = describe(check.observation, MAX_CHECK_CHARS)
    return f"The program passes its own checks, but `{check.command}` does not pass with it. {said}"


BOUNDS: Mapping[str, StopReason] = {"turns": "turns", "time": "time", "tokens": "tokens", "cost": "cost"}
OURS = (REPAIR, REWRITE, FRESH_START)


@dataclass(slots=True)
class Coder(Bot):
    """One task of a run. `progress` grows while it works, from nothing or from what is on record.

    `target` is where the program goes in the end, inside the sandbox; None: nowhere. `examples` were given beside the
    task; `around` is what the model is told of where the program runs; `task`: where it is not the run's first.
    """

    plan: Plan
    executor: Executor
    target: str | None = None
    examples: tuple[str, ...] = ()
    around: str = ""
    explain: Explain = by_error_handler
    task: str = ""
    progress: Progress = field(default_factory=Progress)
    ctx: RunContext = field(init=False, repr=False)

    @property
    def attempts(self) -> list[Attempt]:
        return self.progress.attempts

    async def run(self, ctx: RunContext) -> Ending:
        """Until a program passes, the plan or the budget is at its end, or a hook ends it."""
        self.ctx = ctx
        try:
            return await ctx.in_time(self._until_end, partial(self.ended, "time"))
        except EndedByHook as by:
            return self.ended(by.end.reason, by.end.detail, by.end.status)

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

    def ended(self, reason: StopReason, detail: str, status: Status = "stopped") -> Ending:
        """Before a program passed, with the best there was."""
        found = best(self.attempts)
        verified = False if self.executor.job.has_checks else None
        return Ending(status, reason, detail, found.code if found is not None else None, verified)

    async def _until_end(self) -> Ending:
        while self.progress.rounds < self.plan.most_rounds:
            await self.ctx.parts.pause.passed(self.ctx.record, self.ctx.parts.clock)
            if self.ctx.parts.pause.stopped is not None:
                return self.ended("user", self.ctx.parts.pause.stopped)
            if (bound := self.ctx.account.exhausted(self.ctx.now())) is not None:
                return self.ended(BOUNDS[bound.split(":")[0]], bound)
            turn = self.ctx.state.turns + 1
            await self.ctx.parts.pause.said(self.ctx.record, self.ctx.parts.clock, turn)
            if self.progress.answered is None and (end := await self.ctx.hooks.before_turn(turn)) is not None:
                raise EndedByHook(end)
            attempt = await self._round()
            if attempt.verdict.passed:
                if not await self._deliver(attempt):
                    return self.ended("check_failed", f"{self.target} could not be written")
                if await self._passes() and await self._stands(attempt):
                    return self._done(attempt)
            await self._go_on()
        return self._given_up()

    async def _round(self) -> Attempt:
        """One question to the model, and the program in its answer run."""
        progress = self.progress
        if progress.answered is None:
            try:
                progress.answered = await self._ask()
            except ContextExceeded:
                if not progress.streak:
                    raise
                await self._begin_anew("The conversation does not fit the model any more.")
                progress.answered = await self._ask()
        if progress.done is None:
            progress.attempts.append(await self._attempt(progress.answered))
        return progress.attempts[-1]

    async def _ask(self) -> ModelAnswered:
        """It goes on record with what is done about it."""
        request = self._request()
        answer = await self.ctx.ask(request, self.ctx.parts.on_text)
        sampling = None if request.sampling == self.ctx.started.sampling else request.sampling
        return ModelAnswered(at=self.ctx.now(), turn=self.ctx.state.turns + 1, answer=answer, sampling=sampling)

    def _request(self) -> ModelRequest:
        executor, streak = self.executor, self.progress.streak
        job, wished = executor.job, self.task or self.ctx.started.task
        asked = brief(wished, self.examples, job.tests, executor.signature, job.stdin)
        task = "\n\n".join(part for part in (asked, self.around) if part)
        wants_example = not job.has_checks
        messages = conversation(task, self._words(), streak, self.plan, self.explain, wants_example=wants_example)
        hidden = self.ctx.parts.redactor.text
        cleaned = tuple(one.model_copy(update={"content": hidden(one.content)}) for one in messages)
        drawn = sampling(self.ctx.started.sampling, streak, self.plan, self.progress.rounds)
        return ModelRequest(messages=cleaned, sampling=self.ctx.hooks.sampling(drawn))

    def _words(self) -> list[tuple[int, str]]:
        """What was said to the bot, refusals of the user among it, with the turn before which: kept by fresh starts."""
        state, told_later = self.ctx.state, {attempt.verdict.words for attempt in self.progress.attempts}
        said = [(one.turn, one.text) for one in state.injected if one.source not in OURS and one.text not in told_later]
        for step in state.done:
            if isinstance(step.observation, Refused) and step.observation.by == "user":
                said.append((step.turn + 1, f"The user refused an action: {step.observation.reason}"))
        return sorted(said, key=lambda one: one[0])

    async def _attempt(self, answered: ModelAnswered) -> Attempt:
        """The program of one answer, run; everything on record before it happens."""
        turn, starts = answered.turn, self.progress.starts
        first: tuple[RunEvent, ...] = () if self.ctx.state.turns >= turn else (answered,)
        try:
            draft = read(answered.answer)
        except UnreadableAnswer as error:
            again = self.ctx.state.unreadable + 1
            await self.ctx.add(
                *first, AnswerUnreadable(at=self.ctx.now(), turn=turn, attempt=again, message=error.message)
            )
            return unreadable(turn, starts, answered.answer.content, error.message)
        actions = self.executor.actions(turn, draft)
        steps = tuple(Step(action=action, comment=purpose) for purpose, action in actions.items())
        understood = AnswerUnderstood(at=self.ctx.now(), turn=turn, answer=Answer(steps=steps))
        seen = await self._act(turn, draft, steps, (*first, understood))
        return self.executor.read(turn, starts, draft, seen, answered.answer.content)

    async def _act(
        self, turn: int, draft: Draft, steps: Sequence[Step], first: tuple[RunEvent, ...]
    ) -> dict[str, Observation]:
        """As far as it went well; `first` goes on record with the first action."""
        seen: dict[str, Observation] = {}
        for number, step in enumerate(steps):
            purpose = step.comment or ""
            seen[purpose] = await self.ctx.act(turn, number, step, first)
            first = ()
            if not self.executor.goes_on(purpose, draft, seen[purpose]):
                break
        return seen

    async def _go_on(self) -> None:
        """Mend it next, or begin anew; what the model will be told is on record."""
        plan, streak = self.plan, list(self.progress.streak)
        attempt = self.progress.close()
        again = any(_same(attempt.code, one.code) for one in streak if attempt.code)
        if self.progress.rounds >= plan.most_rounds:
            return
        if plan.fresh_starts and (again or len(streak) >= plan.repairs):
            why = "The same program came back" if again else f"{len(streak) + 1} programs in a row failed"
            await self._begin_anew(f"{why}.")
            return
        words = told(self.progress.streak, plan, self.explain)
        source = REWRITE if is_rewrite(self.progress.streak, plan) else REPAIR
        await self.ctx.say(words, source)

    async def _begin_anew(self, why: str) -> None:
        self.progress.begin_anew()
        words = f"{why} All of it is forgotten; the task is asked anew."
        await self.ctx.say(words, FRESH_START)

    async def _deliver(self, attempt: Attempt) -> bool:
        """Into the user's folder, where checks and hooks look at it."""
        if self.target is None:
            return True
        write = WriteFile(path=self.target, content=attempt.code)
        return (await self.ctx.act(attempt.number, LAST_STEP, Step(action=write))).kind == "written"

    async def _passes(self) -> bool:
        """Whether the user's checks do, with the program in the folder; without a folder nothing that the model does
        could change that.
        """
        for command in self.ctx.started.check if self.target is not None else ():
            done = await self.ctx.hooks.ctx.check(command)
            if not done.passed:
                self.progress.sent_back = failure(done)
                return False
        return True

    async def _stands(self, passed: Attempt) -> bool:
        """Whether no hook sends it back."""
        before = len(self.ctx.state.injected)
        end = await self.ctx.hooks.before_finish(Finish(answer=passed.code), spoken=False)
        if end is not None and (end.status, end.reason) != ("done", "finish"):
            raise EndedByHook(end)
        self.progress.sent_back = "\n".join(one.text for one in self.ctx.state.injected[before:])
        return end is not None

    def _done(self, attempt: Attempt) -> Ending:
        checks = self.executor.job.has_checks
        words = f"{attempt.verdict.checks_passed} checks passed" if checks else "it ran; there were no checks"
        return Ending("done", "finish", words, attempt.code, verified=True if checks else None)

    def _given_up(self) -> Ending:
        found = best(self.attempts)
        if found is None:
            words = f"no program in {len(self.attempts)} answers"
            return Ending("stopped", "unreadable", words, verified=False if self.executor.job.has_checks else None)
        verdict = found.verdict
        checks = f", the best passes {verdict.checks_passed} of {verdict.checks} checks" if verdict.checks else ""
        words = f"{len(self.attempts)} attempts failed{checks}: {verdict.words.splitlines()[0]}"
        if NO_NETWORK in verdict.words:
            words += " (libraries need --net pypi.org,files.pythonhosted.org)"
        return Ending("done", "check_failed", words, found.code, verified=False)


def _same(one: str, other: str) -> bool:
    """Whether two programs differ in nothing but layout and comments."""
    first, second = statements(one), statements(other)
    if first is None or second is None:
        return one.strip() == other.strip()
    return [ast.dump(node) for node in first] == [ast.dump(node) for node in second]
