import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketAttribute, SocketStream

from stockade.core.errors import ContextExceeded, ModelOverloaded, ModelUnavailable, UsageError
from stockade.core.messages import ModelAnswer, Sampling, Usage
from stockade.models.answer_builder import AnswerBuilder
from stockade.models.http import tls_context
from stockade.models.openai import OpenAIModel
from stockade.models.openai_request import Dialect
from stockade.models.providers import is_own
from stockade.models.responses import ResponsesModel
from stockade.models.transport import HttpTimes, Transport
from stockade.paths import state_dir
from stockade.testing.conformance.model import Heard, question
from tests.support.fake_openai import End, FakeOpenAI, Reply, fails, piece, says

pytestmark = pytest.mark.anyio
QUICK = HttpTimes(first_byte_s=0.5, idle_s=0.2, backoff_s=1.0)


class Slept:
    """A sleep that only remembers."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)


@asynccontextmanager
async def model_of(server: FakeOpenAI, slept: Slept | None = None, **rest: object) -> AsyncIterator[OpenAIModel]:
    options = {"times": QUICK, "sleep": slept or Slept(), "jitter": lambda: 0.0} | rest
    async with OpenAIModel(server.base_url, "fake", **options) as model:  # type: ignore[arg-type]
        yield model


async def ask(*replies: Reply, slept: Slept | None = None, **rest: object) -> ModelAnswer:
    async with FakeOpenAI(replies) as server, model_of(server, slept, **rest) as model:
        return await model.ask(question())


async def test_an_answer_with_usage() -> None:
    answer = await ask(says("hello big world"))
    assert answer.content == "hello big world"
    assert answer.usage == Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=2)


async def test_one_connection_and_the_key() -> None:
    async with FakeOpenAI() as server, model_of(server, api_key="secret") as model:
        for _ in range(3):
            await model.ask(question())
        assert server.connections == 1
        assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer secret"}


@pytest.mark.parametrize(
    ("replies", "pauses"),
    [
        ([fails(429, headers={"Retry-After": "7"})], [7.0]),
        ([fails(500), fails(503), fails(502), fails(500)], [1.0, 2.0, 4.0, 8.0]),
        ([Reply([piece("hal")], end="cut")], [1.0]),
        ([Reply([piece("hal")], end="no_done")], [1.0]),
        ([Reply([piece("hal")], end="stall")], [1.0]),
        ([Reply([], end="stall")], [1.0]),
        ([Reply([b"data: {garbage\n\n"])], [1.0]),
        ([Reply([b"data: [1]\n\n"])], [1.0]),
        ([Reply([piece("h"), {"error": {"message": "boom"}}])], [1.0]),
        ([Reply([], end="done")], [1.0]),
    ],
)
async def test_passing_faults_are_tried_again(replies: list[Reply], pauses: list[float]) -> None:
    slept = Slept()
    assert (await ask(*replies, says("at last"), slept=slept)).content == "at last"
    assert slept.pauses == pauses


async def test_what_one_run_hears_of_being_left_alone_holds_for_the_others() -> None:
    over, waiting, slept = anyio.Event(), anyio.Event(), Slept()

    async def sleep(seconds: float) -> None:
        await slept(seconds)
        waiting.set()
        await over.wait()

    async with FakeOpenAI([fails(429, headers={"Retry-After": "60"})]) as server, anyio.create_task_group() as group:
        async with model_of(server, sleep=sleep) as one, model_of(server, sleep=sleep) as other:
            group.start_soon(one.ask, question())
            await waiting.wait()
            group.start_soon(other.ask, question())
            while len(slept.pauses) < 2:
                await anyio.lowlevel.checkpoint()
            assert len(server.questions) == 1
            over.set()
            while len(server.questions) < 3:
                await anyio.lowlevel.checkpoint()
            (known,) = (state_dir() / "quiet").iterdir()  # where other processes look too
            assert known.stat().st_mtime == pytest.approx(time.time() + 60, abs=30)
            os.utime(known, (1, 1))  # it was long ago
            await other.ask(question())
            assert slept.pauses == [60.0, pytest.approx(60, abs=30)]


async def test_no_longer_than_it_said_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = Slept()
    async with FakeOpenAI([fails(429, headers={"Retry-After": "60"})]) as server:
        async with model_of(server, sleep=slept) as model:
            await model.ask(question())
            real = time.time
            monkeypatch.setattr(time, "time", lambda: real() - 7200)
            await model.ask(question())
    assert slept.pauses == [60.0, pytest.approx(60, abs=1)]


async def test_retries_come_to_an_end() -> None:
    slept = Slept()
    with pytest.raises(ModelOverloaded, match=r"is busy \(429\): slow down") as caught:
        await ask(*[fails(429, "slow\ndown", headers={"Retry-After": "100"})] * 5, slept=slept)
    assert caught.value.retry_after_s == 100
    assert slept.pauses == [100.0] * 4


async def test_a_server_that_wants_to_be_left_alone_for_long_is_not_waited_for() -> None:
    slept = Slept()
    with pytest.raises(ModelOverloaded, match="is busy"):
        await ask(fails(429, headers={"Retry-After": "3600"}), slept=slept)
    assert slept.pauses == []


@pytest.mark.parametrize("bad", [Reply([piece("hal")], end="cut"), Reply([piece("hal"), {"error": {"message": "x"}}]),
                                 Reply([piece("hal")], end="stall")])  # fmt: skip
async def test_what_was_heard_of_an_answer_that_broke_off_is_void(bad: Reply) -> None:
    heard = Heard()
    async with FakeOpenAI([bad, says("hello")]) as server, model_of(server) as model:
        await model.ask(question(), heard)
    assert ("".join(heard.pieces), heard.again) == ("hello", 1)


async def test_who_heard_nothing_is_told_nothing() -> None:
    heard = Heard()
    async with FakeOpenAI([fails(500), Reply([], end="cut"), says("hello")]) as server, model_of(server) as model:
        await model.ask(question(), heard)
    assert heard.again == 0


async def test_a_server_that_is_gone_for_good_is_not_asked_again() -> None:
    slept = Slept()
    with pytest.raises(ModelUnavailable, match="it died"):
        await ask(fails(500), slept=slept, died=lambda: "it died")
    assert slept.pauses == []


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (fails(401, "bad key"), "refused the key .401.: bad key"),
        (fails(403), "refused the key"),
        (fails(404), "has no model 'fake'"),
        (fails(400, "bad schema"), "refused the request .400.: bad schema"),
        (Reply(status=418, body=b"<html>\x1b[31mteapot"), "refused the request .418.: <html> .31mteapot"),
        (Reply(body=b"<html>", headers={"Content-Type": "text/html"}), "this is no model API"),
        (Reply([piece("".join(map(str, range(200_000))))] * 12), "an answer of more than 10485760 characters"),
        (Reply([b"data: " + b"x" * (17 << 20)]), "an event of more than"),
    ],
)
async def test_lasting_faults_are_told_at_once(reply: Reply, message: str) -> None:
    slept = Slept()
    with pytest.raises(ModelUnavailable, match=message) as caught:
        await ask(reply, slept=slept)
    assert slept.pauses == []
    assert "\n" not in str(caught.value)


GRAMMAR = fails(400, "Failed to initialize samplers: failed to parse grammar")


async def test_a_schema_that_is_refused_is_left_out_from_then_on() -> None:
    async with FakeOpenAI([GRAMMAR, says("{}"), says("{}")]) as server, model_of(server) as model:
        for _ in range(2):
            assert (await model.ask(question(schema={"type": "object"}))).content == "{}"
        assert ["response_format" in asked.body for asked in server.questions] == [True, False, False]


async def test_a_grammar_that_is_no_schemas_is_told() -> None:
    async with FakeOpenAI([GRAMMAR]) as server, model_of(server) as model:
        with pytest.raises(ModelUnavailable, match="failed to parse grammar"):
            await model.ask(question())
        assert (await model.ask(question(schema={}))).content == "ok"
        assert "response_format" in server.questions[-1].body


@pytest.mark.parametrize("in_stream", [True, False])
async def test_context_exceeded(in_stream: bool) -> None:
    error = {"type": "exceed_context_size_error", "message": "too long", "n_prompt_tokens": 9031, "n_ctx": 4096}
    with pytest.raises(ContextExceeded, match="too long") as caught:
        await ask(Reply([{"error": error}]) if in_stream else fails(400, **error))  # type: ignore[arg-type]
    assert (caught.value.prompt_tokens, caught.value.window) == (9031, 4096)


@pytest.mark.parametrize("end", ["done", "no_done", "cut"])
async def test_the_end_is_known_by_finish_reason(end: End) -> None:
    assert (await ask(Reply([piece("all"), piece(finish="stop")], end=end))).content == "all"


async def test_done_without_finish_reason_is_enough() -> None:
    assert (await ask(Reply([piece("all")]))).finish_reason == "stop"


async def test_a_server_that_does_not_stream() -> None:
    body = json.dumps({"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}).encode()
    assert (await ask(Reply(body=body))).content == "whole"


async def test_odd_tool_calls() -> None:
    first = piece(tool_calls=[{"id": "a", "function": {"name": "sh", "arguments": '{"x"'}}])
    second = piece(tool_calls=[{"id": "a", "function": {"name": "sh", "arguments": ": 1}"}}])
    (call,) = (await ask(Reply([first, second, piece(finish="stop")]))).tool_calls
    assert call["function"] == {"name": "sh", "arguments": '{"x": 1}'}


async def endless(item: bytes, times: HttpTimes, first: bytes = b"") -> tuple[float, str]:
    """How long a stream that goes on with `item` is listened to, and what is said then."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                while b"\r\n\r\n" not in await stream.receive():
                    pass
                await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + first)
                while True:
                    await stream.send(item)
                    await anyio.sleep(0.02)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        began = anyio.current_time()
        async with Transport(url, "m", {}, times=times) as transport:
            with anyio.fail_after(10), pytest.raises(ModelOverloaded) as caught:
                await transport.ask(f"{url}/x", b"{}", AnswerBuilder, None)
        took = anyio.current_time() - began
        group.cancel_scope.cancel()
    return took, caught.value.message


TEXT = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
STALLS = HttpTimes(first_byte_s=60, idle_s=0.3, alive_s=60, retries=0)


@pytest.mark.parametrize("delta", [b"{}", b'{"content": ""}', b'{"role": "assistant", "content": null}'])
@pytest.mark.parametrize("first", [b"", TEXT])
async def test_events_that_bring_nothing_are_a_stall(delta: bytes, first: bytes) -> None:
    took, said = await endless(b'data: {"choices": [{"delta": %b}]}\n\n' % delta, STALLS, first)
    assert took > 0.25
    assert said.endswith("said nothing for 0.3 s")


@pytest.mark.parametrize("item", [b": ping\n\n", b'event: ping\ndata: {"type": "ping"}\n\n'])
async def test_signs_of_life_alone_are_not_enough_for_ever(item: bytes) -> None:
    took, _ = await endless(item, STALLS.model_copy(update={"alive_s": 0.8}), TEXT)
    assert took > 0.75


async def test_thinking_is_no_stall() -> None:
    thought = b'data: {"choices": [{"delta": {"reasoning": "hm"}}]}\n\n'
    with pytest.raises(TimeoutError), anyio.fail_after(1):
        await endless(thought, STALLS)


async def test_pings_keep_it_alive() -> None:
    comments = [b": ping\r\n\r\n"] * 3
    assert (await ask(Reply([*comments, piece("a"), *comments, piece(finish="stop")]))).content == "a"


async def test_cancelling_closes_the_stream() -> None:
    async with FakeOpenAI([Reply([piece("one")], end="stall")]) as server:
        slept = Slept()
        async with model_of(server, slept, times=HttpTimes(idle_s=60)) as model:
            async with anyio.create_task_group() as group:

                async def run() -> None:
                    await model.ask(question(), lambda _: group.cancel_scope.cancel())

                group.start_soon(run)
            with anyio.fail_after(5):
                await server.gone.wait()
            assert slept.pauses == []
            assert (await model.ask(question())).content == "ok"


async def test_no_server() -> None:
    async with FakeOpenAI() as server:
        url = server.base_url
    with pytest.raises(ModelUnavailable, match=r"no model server at 127.0.0.1"):
        async with OpenAIModel(url, "m"):
            pass


async def test_no_such_host() -> None:
    with pytest.raises(ModelUnavailable, match=r"no model server at no-such-host.invalid"):
        async with OpenAIModel("http://no-such-host.invalid/v1", "m"):
            pass


async def test_a_server_that_went_away_is_tried_again() -> None:
    slept = Slept()
    async with FakeOpenAI() as server, model_of(server, slept) as model:
        await model.ask(question())
        await server.__aexit__()
        with pytest.raises(ModelOverloaded, match="was lost"):
            await model.ask(question())
    assert len(slept.pauses) == 4


async def test_a_wrong_key_is_told_on_entering() -> None:
    async with FakeOpenAI(get_status=401) as server:
        with pytest.raises(ModelUnavailable, match="refused the key"):
            async with OpenAIModel(server.base_url, "m", "wrong"):
                pass


@pytest.mark.parametrize(
    ("models", "props", "llama", "window"),
    [
        ([{"id": "fake"}], {"default_generation_settings": {"n_ctx": 4096}}, True, 4096),
        ([{"id": "fake"}], {"default_generation_settings": {"n_ctx": 4096}}, False, None),
        ([{"id": "fake", "meta": {"n_ctx_train": 32768}}], None, True, 32768),
        ([{"id": "other", "max_model_len": 5}, {"id": "fake", "max_model_len": 9000}], None, False, 9000),
        ([], {"default_generation_settings": None}, True, None),
        ([{"id": "fake", "meta": 3, "max_model_len": "x"}], {}, True, None),
    ],
)
async def test_the_window_is_learned(
    models: list[dict[str, object]], props: dict[str, object] | None, llama: bool, window: int | None
) -> None:
    async with FakeOpenAI(models=models, props=props) as server:
        async with OpenAIModel(server.base_url, "fake", dialect=Dialect(llama_cpp=llama)) as model:
            assert model.info.context_window == window


async def test_plain_http_builds_no_tls_context() -> None:
    tls_context.cache_clear()
    await ask(says("x"))
    assert tls_context.cache_info().misses == 0


async def test_certificates_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    tls_context.cache_clear()
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere")
    with pytest.raises(ModelUnavailable, match=r"certificates .* cannot be read.*SSL_CERT_FILE"):
        async with OpenAIModel("https://127.0.0.1:1/v1", "m"):
            pass


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://x/v1", "http://", "http://h:99999/v1", "http://[::1"])
async def test_bad_addresses(url: str) -> None:
    with pytest.raises(UsageError, match="not an address"):
        OpenAIModel(url, "m")


async def test_loopback() -> None:
    assert is_own("http://127.0.0.1:1/v1")
    assert is_own("http://[::1]:1")
    assert is_own("http://localhost/v1")
    assert not is_own("http://127.0.0.1.example.org/v1")
    assert not is_own("https://api.openai.com/v1")


async def test_an_answer_that_repeats_itself_is_not_heard_to_its_end() -> None:
    """The server is left in the middle of it, and does the next question."""
    endless = Reply([piece("over and over ") for _ in range(200)], end="stall")
    async with FakeOpenAI([endless, says("well")]) as server, model_of(server, times=HttpTimes()) as model:
        with anyio.fail_after(20):
            answer = await model.ask(question())
            assert answer.finish_reason == "repeats"
            assert 80 <= answer.usage.completion_tokens <= 110
            await server.gone.wait()
            assert (await model.ask(question())).content == "well"


@pytest.mark.parametrize("patient", [True, False])
async def test_a_lost_connection_is_no_answer_to_a_question_that_is_no_mere_probe(patient: bool) -> None:
    """Taken for one, it sent a conversation that had gone as tokens as text: the server's cache was lost."""
    replies = [Reply(end="cut"), Reply(body=b'{"tokens": [1]}')]
    async with FakeOpenAI(replies) as server, Transport(server.base_url, "m", {}, sleep=no_sleep) as transport:
        told = await transport.tell(f"{server.url}/tokenize", b"{}", patient=patient)
    assert (told, len(server.asked)) == (({"tokens": [1]}, 2) if patient else ({}, 1))


async def no_sleep(_seconds: float) -> None:
    return None


@pytest.mark.parametrize("kind", [OpenAIModel, ResponsesModel])
@pytest.mark.parametrize("word", ["reasoning_effort", "reasoning", "tool_choice", "max_tokens", "session_id", "stop"])
async def test_what_is_refused_whatever_is_left_out_is_an_error(kind: type[OpenAIModel], word: str) -> None:
    asked = question().model_copy(update={"sampling": Sampling(effort="high"), "stop": ("x",)})
    async with FakeOpenAI([fails(400, f"{word}: this is not supported")] * 9) as server:
        async with kind(server.base_url, "fake") as model:
            with pytest.raises(ModelUnavailable, match="is not supported"):
                await model.ask(asked)
            assert len(server.questions) <= 4
