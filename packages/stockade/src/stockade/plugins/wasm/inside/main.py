"""Requests on standard input, answers on standard output, JSON in lines.

    {"op": "compile", "limits": ...} and the component after the line   -> {"description": ...} and the compiled code
    {"op": "call", "compiled": PATH, "path": [...], "arguments": ...}   -> {"status": ..., "text": ...}

After a call the next one is waited for. What does not end by itself is ended without a thread or a switch for what
does: one thread waits for the alarm, one for the end of input; the calls themselves are read and done by the main
thread, which pays two system calls for its limit.
"""

import ctypes
import gc
import json
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NoReturn, TypeVar

from wasmtime import Engine, WasmtimeError
from wasmtime import component as wc

from stockade.plugins.wasm.inside.calls import Ended, Loaded, Printed, call, describe, engine
from stockade.plugins.wasm.inside.values import Wrong

_PR_SET_DUMPABLE = 4
Answer = dict[str, Any]


Result = TypeVar("Result")
_EARLY_S = 0.001
"""An alarm this much before its time is no leftover of the call before: timers and clocks round."""


class Watch:
    """One a process, made before any other thread: those take over that the alarm is not theirs."""

    def __init__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        self._lock = threading.Lock()
        self._due = math.inf
        self._late: Callable[[], NoReturn] = _over
        threading.Thread(target=self._wait, daemon=True).start()

    def within(self, seconds: float, late: Callable[[], NoReturn], work: Callable[[], Result]) -> Result:
        """What `work` gives; when it takes longer, `late` is called, by another thread, and ends the process."""
        self._late, self._due = late, time.monotonic() + seconds
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            return work()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            with self._lock:  # held while `late` is told: nobody answers twice
                self._due = math.inf

    def _wait(self) -> None:
        while True:
            signal.sigwait({signal.SIGALRM})
            with self._lock:
                if self._due - time.monotonic() <= _EARLY_S:
                    self._late()


def end_with(stream: int) -> None:
    """From here on the end of input is the end, also of a call that still runs."""
    threading.Thread(target=_hung_up, args=(stream,), daemon=True).start()


def _hung_up(stream: int) -> NoReturn:
    waiting = select.poll()
    waiting.register(stream, select.POLLRDHUP)
    waiting.poll()
    _over()


def _over() -> NoReturn:
    os._exit(0)


def main() -> None:
    """Never returns with a traceback for what the component did."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # what is granted is not for the bot's commands to read
    watch = Watch()
    gc.freeze()  # what was imported stays: it is not looked through again in every call
    gc.enable()
    source = sys.stdin.buffer
    request = json.loads(source.readline())
    if request["op"] == "compile":
        limits = request["limits"]
        _answer(*_compile(engine(*_kind(limits)), source.read(), limits, watch))
    end_with(sys.stdin.fileno())
    while True:
        _write(_call(request, request["limits"], watch))
        line = source.readline()
        if not line:
            os._exit(0)
        request = json.loads(line)


@cache
def _loaded(path: str, fuel: bool, stack_bytes: int) -> Loaded:
    made_for = engine(fuel, stack_bytes)
    return Loaded(made_for, wc.Component.deserialize_file(made_for, path))


def _kind(limits: dict[str, Any]) -> tuple[bool, int]:
    """Of engine."""
    return bool(limits.get("fuel")), int(limits["stack_bytes"])


def _write(answer: Answer, data: bytes | bytearray = b"") -> None:
    out = sys.stdout.buffer
    out.write(json.dumps(answer).encode() + b"\n" + data)
    out.flush()


def _answer(answer: Answer, data: bytes | bytearray = b"") -> NoReturn:
    """The last answer; the process ends with it, whatever still runs."""
    _write(answer, data)
    os._exit(0)


def _compile(
    made_for: Engine, component: bytes, limits: dict[str, Any], watch: Watch
) -> tuple[Answer, bytes | bytearray]:
    """`get-metadata` of a hostile component must end too."""
    late = partial(_answer, {"error": "get-metadata does not end"})
    try:
        compiled = wc.Component(made_for, component)
        found = watch.within(limits["timeout_s"], late, lambda: describe(made_for, compiled, limits))
        return {"description": found}, compiled.serialize()
    except WasmtimeError as error:
        return {"error": _reason(error)}, b""


def _call(request: dict[str, Any], limits: dict[str, Any], watch: Watch) -> Answer:
    seconds = float(limits["timeout_s"])
    late = {"status": "error", "kind": "timeout", "text": f"the tool did not end within {seconds:g} s and was stopped"}
    begun, printed = time.monotonic(), Printed()
    try:
        loaded = _loaded(request["compiled"], *_kind(limits))
        load_s, used = time.monotonic() - begun, time.process_time()
        text, status = watch.within(seconds, partial(_answer, late), lambda: call(loaded, request, printed))
    except Wrong as error:
        return {"status": "error", "kind": "arguments", "text": str(error)}
    except Ended as error:
        return {"status": "error", "kind": error.kind, "text": str(error)}
    size = len(text.encode(errors="replace"))
    if size > limits["output_bytes"]:
        text = f"the result has {size} bytes, over the limit of {limits['output_bytes']}: ask for less"
        return {"status": "error", "kind": "output", "text": text}
    return {
        "status": status,
        "text": text,
        "printed": printed.text,
        "load_s": load_s,
        "cpu_s": time.process_time() - used,
    }


def _reason(error: Exception) -> str:
    """What failed, and its innermost cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no reason given"]
    return (
        lines[0][:150]
        if len(lines) == 1
        else f"{lines[0][:150]}: {lines[-1].partition(': ')[2][:150] or lines[-1][:150]}"
    )
