"""The passages of a text that are nearest to some words: BM25 over its paragraphs, no model. Pure."""

import math
import re
from collections import Counter
from dataclasses import dataclass

_WORD = re.compile(r"\w+")
_COMMON = re.compile(
    "a|an|and|are|as|at|be|by|can|did|do|does|for|from|has|have|how|i|if|in|is|it|its|me|of|on|or|that|the|their|there|"
    "they|this|to|was|were|what|when|where|which|who|why|will|with|you|your"
)
_K1, _B = 1.2, 0.75
LONGEST = 1200
"""Of a passage, in characters; a longer paragraph is several."""


@dataclass(frozen=True, slots=True)
class Passage:
    """`heading` is the nearest one above it; `place` its number in the text."""

    text: str
    heading: str
    place: int


def passages(text: str) -> list[Passage]:
    """Paragraphs, short neighbours together; what is a heading is said with those below it."""
    found, heading, held = list[Passage](), "", ""

    def flush() -> None:
        nonlocal held
        if held:
            found.append(Passage(held, heading, len(found)))
        held = ""

    for block in re.split(r"\n\s*\n", text):
        block = block.strip("\n")
        if re.match(r"#{1,6} ", block) and "\n" not in block:
            flush()
            heading = block.lstrip("# ")[:200]
            continue
        for piece in _pieces(block):
            if len(held) + len(piece) > LONGEST // 2:
                flush()
            held = f"{held}\n{piece}" if held else piece
    flush()
    return found


def nearest(text: str, query: str, limit: int) -> tuple[list[Passage], bool]:
    """The best that fit into `limit` characters, in the order of the text; whether any word was found at all."""
    every, wanted = passages(text), set(_words(query))
    counts = [Counter(_words(f"{one.heading} {one.text}")) for one in every]
    lengths = [max(1, count.total()) for count in counts]
    mean = sum(lengths) / len(lengths) if lengths else 1.0
    shared = [wanted & count.keys() for count in counts]  # only these: a page of many passages costs no more
    within = Counter(word for words in shared for word in words)
    rarity = {word: math.log(1 + (len(every) - often + 0.5) / (often + 0.5)) for word, often in within.items()}
    scores = [
        sum(
            rarity[word] * count[word] * (_K1 + 1) / (count[word] + _K1 * (1 - _B + _B * length / mean))
            for word in sorted(words)
        )
        for words, count, length in zip(shared, counts, lengths, strict=True)
    ]
    ranked = sorted(every, key=lambda one: (-scores[one.place], one.place))
    kept, left = list[Passage](), limit
    for one in ranked:
        if kept and (not scores[one.place] or len(one.text) > left):
            break
        kept.append(one)
        left -= len(one.text)
    return sorted(kept, key=lambda one: one.place), any(scores)


def _words(text: str) -> list[str]:
    found = [word for word in _WORD.findall(text.lower()) if not _COMMON.fullmatch(word)]
    return [word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word for word in found]


def _pieces(block: str) -> list[str]:
    if len(block) <= LONGEST:
        return [block] if block.strip() else []
    pieces, held = list[str](), ""
    for sentence in re.split(r"(?<=[.!?])\s+|\n", block):
        for part in (sentence[at : at + LONGEST] for at in range(0, max(1, len(sentence)), LONGEST)):
            if held and len(held) + len(part) > LONGEST:
                pieces.append(held)
                held = ""
            held = f"{held} {part}" if held else part
    return [*pieces, held] if held else pieces
