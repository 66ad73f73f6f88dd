"""Whether a task asks for words, or for a change in the folder.

In doubt for a change: the bot is then shown that nothing has changed. Shown that after a mere question, the 1.5B takes
it for a failure, and gives up what it had answered.
"""

import re

_TO_TELL = (
    r"\?|^(?:please |can you |could you )?(?:tell|say|show|explain|describe|summari[sz]e|list|find|count|read|what"
    r"|which|who|how|why|when|where|is|are|does|answer|print|review|compare|analy[sz]e|report"
)
_TELL = re.compile(rf"{_TO_TELL})\b", re.IGNORECASE)
_QUESTION = re.compile(rf"{_TO_TELL}|look|check|do|run)\b", re.IGNORECASE)
_CHANGE = re.compile(
    r"\b(?:writ(?:e|es|ing|ten)|sav(?:e|es|ed|ing)|creat\w+|mak(?:e|es|ing)|add(?:s|ed|ing)?(?! up\b)|append\w*|put"
    r"|mov(?:e|es|ed|ing)|renam\w+|delet\w+|remov\w+|replac\w+|chang\w+|fix(?:es|ed|ing)?|into|convert\w*|cop(?:y|ies)"
    r"|extract\w*|unpack\w*|pack(?:s|ed|ing)?|commit|set|stor(?:e|es|ed|ing)|edit\w*|updat\w+|correct(?:s|ed|ing)?|mend\w*|insert\w*|generat\w+"
    r"|build|install\w*|implement\w*|repair\w*|sort|merge|split|clean|format|translate|let|should|must|so that"
    r"|(?:an? |the )?file [\w./-]+\.\w+ with|in [\w./-]+\.\w+, (?:each|one|with|in|sorted|without))\b",
    re.IGNORECASE,
)
_FOR_WORDS = re.compile(
    r"\?\s*$|^(?:what|which|who|how|why|when|where)\b"
    r"|\b(?:answer with|finish with|tell me|tell us|say (?:what|which|who|how|why|when|where|whether|if))\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.?!](?!\w)|\n")
_TO_WRITE = re.compile(r"\b(?:write|save|put|store)\b", re.IGNORECASE)
_INTO = re.compile(r"\b(?:in|into|to)\b", re.IGNORECASE)
_FILE = re.compile(r"[\w-]\.[a-z]\w{1,4}\b", re.IGNORECASE)
_AND_SAY = re.compile(r"\b(?:answer with|finish with|tell me|tell us)\b", re.IGNORECASE)


def may_be_a_question(task: str) -> bool:
    """A task that may be done without a change in the folder."""
    return _QUESTION.search(task) is not None


def only_asks(task: str) -> bool:
    """A task that is surely done without one."""
    return _TELL.search(task) is not None and not _CHANGE.search(task)


def asks_for_words(task: str) -> bool:
    """A task that has an answer for the person, whatever else it wants; one that goes into a file is none."""
    if not _AND_SAY.search(task) and any(map(_goes_into_a_file, _SENTENCE_END.split(task))):
        return False
    return _FOR_WORDS.search(task) is not None or only_asks(task)


def _goes_into_a_file(sentence: str) -> bool:
    """Three looks, each from where the one before it ended: one pattern for all would take hours for a hostile task."""
    at = 0
    for part in (_TO_WRITE, _INTO, _FILE):
        if (found := part.search(sentence, at)) is None:
            return False
        at = found.end()
    return True
