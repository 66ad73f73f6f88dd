"""What reading and writing an answer protocol takes, beside the names of `stockade.extend`: pure functions.

A protocol of calls in a text of its own form begins with TextAnswers, which knows what all of them do alike.
"""

from stockade.answers import json_schema
from stockade.answers.action_codec import PARAMETERS, further, make_action, parameter_names, short_thought, tool_named
from stockade.answers.calls import (
    EARLY_FINISH,
    TextAnswers,
    action_in,
    as_json,
    done_or_refused,
    invalid,
    native_answer,
    salvaged,
)
from stockade.answers.fenced import SHELLS, Block, action_of, as_lines, block_of, fenced, here_document
from stockade.answers.lenient import cut_off, first_value, spoken, whole
from stockade.answers.tool_specs import call_schema, described, names, notes, plain_schema, refused, sample, spelled

__all__ = [
    "EARLY_FINISH",
    "PARAMETERS",
    "SHELLS",
    "Block",
    "TextAnswers",
    "action_in",
    "action_of",
    "as_json",
    "as_lines",
    "block_of",
    "call_schema",
    "cut_off",
    "described",
    "done_or_refused",
    "fenced",
    "first_value",
    "further",
    "here_document",
    "invalid",
    "json_schema",
    "make_action",
    "names",
    "native_answer",
    "notes",
    "parameter_names",
    "plain_schema",
    "refused",
    "salvaged",
    "sample",
    "short_thought",
    "spelled",
    "spoken",
    "tool_named",
    "whole",
]
