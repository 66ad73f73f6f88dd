"""When two outcomes are the same. Of success every byte counts: a log that grows is news.

A failure is the same one but for what differs each time: times of day, durations, addresses in memory, process ids,
names of temporary files. Small numbers count: three failing tests are fewer than four. So does what the action named.
"""

import re

from stockade.core.actions import Action, CommandOutput, Failed, Observation, ToolResult

_VARYING = re.compile(
    r"""
      \d{4}-\d\d-\d\d(?:[T\ _]\d\d[:.-]?\d\d(?:[:.-]?\d\d(?:[.,]\d+)?)?)?(?:Z|\ ?[+-]\d\d:?\d\d)?
    | \b\d{1,4}(?::\d\d){2,3}(?:[.,]\d+)?
    | \b(?:\d+m\ ?)?\d+(?:[.,]\d+)?\ ?(?:ns|us|µs|ms|s|secs?|seconds?|mins?|minutes?)\b
    | 0x[0-9a-f]+
    | \b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b
    | \b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,}\b
    | \bp(?:id|rocess)\b\W{0,3}\d+
    | ==\d+==
    | \[\d+\][+-]?\ +\d+
    | \b\d+(?=\ +(?:Killed|Terminated|Aborted|Segmentation|Bus\ error|Hangup|Trace/))
    | /tmp/[^\s:'"`/]+
    | \btmp[._-]?(?=\w*\d)\w{6,}
    | \d{5,}
    """,
    re.VERBOSE | re.IGNORECASE,
)


def key(action: Action, observation: Observation) -> tuple[str, str]:
    """The action, and its outcome but for how long it took: equal when it was done again in vain."""
    done = action.model_dump_json()
    match observation:
        case CommandOutput() if observation.exit_code or observation.timed_out:
            said = [stream.decode(errors="replace") for stream in (observation.stdout, observation.stderr)]
            ended = f"{observation.exit_code} {observation.timed_out} {observation.shell_event} {observation.cwd}"
            return done, "\0".join([ended, *(_same_each_time(text, done) for text in said)])
        case Failed():
            return done, f"failed {_same_each_time(observation.message, done)}"
        case ToolResult(status="error"):
            return done, f"error {_same_each_time(observation.text, done)}"
        case _:
            return done, observation.model_dump_json(exclude={"duration_s", "same"})


def _same_each_time(text: str, named: str) -> str:
    return _VARYING.sub(lambda found: found[0] if found[0] in named else "#", text)
