"""What a run came to as JUnit's XML, which CI servers show: a test case for the run, and one for each `--check`."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree

from stockade.core.events import CheckFinished, RunEvent, RunFinished, RunResumed, RunStarted
from stockade.exports.atif import text_of
from stockade_sandbox.results import CommandOutput

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no way to write."""
_OUTPUT_CHARS = 100_000


def junit(events: Sequence[RunEvent]) -> str:
    """`events` begin with run_started. A check that the run did not come to is skipped; its last time counts."""
    started = events[0]
    assert isinstance(started, RunStarted)
    wanted, finished = started.check, None
    ran = dict[str, CheckFinished]()
    for event in events:
        match event:
            case RunResumed():
                wanted, finished = event.check or wanted, None
                ran.clear()
            case CheckFinished():
                ran[event.command] = event
            case RunFinished():
                finished = event
            case _:
                pass
    cases = [_of_run(finished), *(_of_check(command, ran.get(command)) for command in wanted)]
    counts = {kind: sum(case.find(kind) is not None for case in cases) for kind in ("failure", "error", "skipped")}
    suite = ElementTree.Element("testsuite", {
        "name": f"stockade {started.run_id}", "tests": str(len(cases)), "failures": str(counts["failure"]),
        "errors": str(counts["error"]), "skipped": str(counts["skipped"]), "time": f"{events[-1].at - started.at:.3f}",
        "timestamp": datetime.fromtimestamp(started.at, UTC).strftime("%Y-%m-%dT%H:%M:%S"),
    })  # fmt: skip
    about = ElementTree.SubElement(suite, "properties")
    for name, value in (("task", started.task), ("bot", started.bot), ("model", started.model)):
        ElementTree.SubElement(about, "property", {"name": name, "value": _clean(value)})
    suite.extend(cases)
    whole = ElementTree.Element("testsuites")
    whole.append(suite)
    ElementTree.indent(whole)
    return ElementTree.tostring(whole, encoding="unicode", xml_declaration=True)


def _of_run(finished: RunFinished | None) -> ElementTree.Element:
    case = ElementTree.Element("testcase", {"classname": "stockade.run", "name": "the run comes to its end"})
    if finished is None:
        _mark(case, "error", "it has not ended")
    elif finished.status != "done":
        kind = "error" if finished.status == "failed" else "failure"
        _mark(case, kind, f"{finished.status}: {finished.reason}{f' ({finished.detail})' if finished.detail else ''}")
    if finished is not None and finished.answer:
        ElementTree.SubElement(case, "system-out").text = _clean(finished.answer)
    return case


def _of_check(command: str, ran: CheckFinished | None) -> ElementTree.Element:
    case = ElementTree.Element("testcase", {"classname": "stockade.check", "name": _clean(command)})
    if ran is None:
        _mark(case, "skipped", "the run did not come to it")
        return case
    seen = ran.observation
    if isinstance(seen, CommandOutput):
        case.set("time", f"{seen.duration_s:.3f}")
    if not ran.passed:
        code = f" (exit status {seen.exit_code})" if isinstance(seen, CommandOutput) else ""
        _mark(case, "failure", f"it does not pass{code}")
    ElementTree.SubElement(case, "system-out").text = _clean(text_of(seen))
    return case


def _mark(case: ElementTree.Element, kind: str, message: str) -> None:
    ElementTree.SubElement(case, kind, {"message": _clean(message)})


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)[:_OUTPUT_CHARS]
