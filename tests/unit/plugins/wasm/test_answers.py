"""USE_TOOL lines: several parameters, quotes, commas, exact names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.core.actions import Action, Answer, EditFile, Finish, ReadFile, Shell, Step, WriteFile
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import ModelAnswer
from stockade.plugins.wasm.answers import UseToolAnswers

TOOLS = ("shell", "read_file", "write_file", "edit_file", "finish")
PROTOCOL = UseToolAnswers()


def read(content: str) -> Answer:
    return PROTOCOL.read(ModelAnswer(content=content), TOOLS)


@pytest.mark.parametrize(
    ("content", "action"),
    [
        ('USE_TOOL: shell, command="ls"', Shell(command="ls")),
        ("USE_TOOL: shell, command=ls -la", Shell(command="ls -la")),
        ("USE_TOOL: shell, command=echo a, b=c", Shell(command="echo a, b=c")),
        ("I look.\n\n`USE_TOOL: shell, command=ls`\nDone.", Shell(command="ls")),
        ("- **USE_TOOL**: shell, command=ls", Shell(command="ls")),
        ("USE_TOOL: shell, command=echo `date`", Shell(command="echo `date`")),
        ("`USE_TOOL`: shell, command=echo `date`", Shell(command="echo `date`")),
        ("`USE_TOOL: shell, command=echo `date``", Shell(command="echo `date`")),
        ("```USE_TOOL: shell, command=ls```", Shell(command="ls")),
        ('USE_TOOL: shell command="ls"', Shell(command="ls")),
        ('USE_TOOL: shell(command="ls")', Shell(command="ls")),
        ('USE_TOOL: run, command="ls"', Shell(command="ls")),
        ('USE_TOOL: shell, command="ls, -l, \\"a b\\"" and more', Shell(command='ls, -l, "a b"')),
        ('USE_TOOL: shell, command="grep -E \\"\\d+\\.\\" f"', Shell(command='grep -E "\\d+\\." f')),
        ("USE_TOOL: shell, command='printf \"a\\n\"'", Shell(command='printf "a\\n"')),
        ('USE_TOOL: shell, command="cat <<X\ntwo\nX"', Shell(command="cat <<X\ntwo\nX")),
        ('USE_TOOL: write_file, path=a.txt, content="x=1, y=2\\n"', WriteFile(path="a.txt", content="x=1, y=2\n")),
        ("USE_TOOL: write_file, path=a, content=", WriteFile(path="a", content="")),
        ("USE_TOOL: read_file, path=a, b.txt, start=2, end=9", ReadFile(path="a, b.txt", start=2, end=9)),
        ('USE_TOOL: edit_file, path="f", old="a", new=""', EditFile(path="f", old="a", new="")),
        ('USE_TOOL: finish, answer="42"\nUSE_TOOL: shell, command="ls"', Finish(answer="42")),
    ],
)
def test_reads(content: str, action: Action) -> None:
    assert read(content).steps == (Step(action=action),)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no line"),
        ("Please use USE_TOOL: shell", "no line"),
        ("USE_TOOL:", "names no tool"),
        ("USE_TOOL: shellX, command=ls", "did you mean shell"),
        ("USE_TOOL: Shell2", "there is no tool"),
        ("USE_TOOL: shell", "command: missing"),
        ("USE_TOOL: shell, argument=ls", "no parameter 'argument'"),
        ('USE_TOOL: shell, command="ls', "closing quote"),
        ("USE_TOOL: shell, command=", "empty"),
        ('USE_TOOL: shell, command="a", command="b"', "twice"),
        ('USE_TOOL: shell, command="rm -rf ./"$dir"/tmp"', "goes on behind its last quote"),
        ('USE_TOOL: shell, command="sed -i "s/a/b/" f"', "goes on behind its last quote"),
        ('USE_TOOL: shell, command="grep" "TODO" "words.txt"', "goes on behind its last quote"),
        ('USE_TOOL: shell, command="ls" > out.txt', "goes on behind its last quote"),
        ('USE_TOOL: write_file, path="a.py", content="print("hi")"', "goes on behind its last quote"),
        ("USE_TOOL: read_file, path=a, start=one", "start"),
    ],
)
def test_refuses_in_words(content: str, words: str) -> None:
    with pytest.raises(UnreadableAnswer) as caught:
        read(content)
    assert words in caught.value.message


@given(st.text(min_size=1).filter(str.strip), st.text())
def test_any_value_comes_back(path: str, content: str) -> None:
    action = WriteFile(path=path, content=content)
    message = PROTOCOL.write(Answer(thought="x", steps=(Step(action=action),)))
    assert read(message.content).steps[0].action == action
