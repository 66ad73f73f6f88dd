"""Fenced answers: which block counts, and what it means."""

from collections.abc import Sequence

import pytest

from stockade.answers.fenced import FencedAnswers
from stockade.core.actions import Action, Answer, AskUser, EditFile, Finish, ReadFile, Shell, Step, SubTask, WriteFile
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import ModelAnswer, ModelRequest
from stockade.core.tools import Offered, ToolSpec

TOOLS = ("shell", "read_file", "write_file", "edit_file", "finish")
PROTOCOL = FencedAnswers()


def read(content: str, tools: Sequence[Offered] = TOOLS) -> Answer:
    return PROTOCOL.read(ModelAnswer(content=content), tools)


@pytest.mark.parametrize(
    ("content", "action"),
    [
        ("```bash\nls\n```", Shell(command="ls")),
        ("```sh\nls\npwd\n```", Shell(command="ls\npwd")),
        ("```bash\nls", Shell(command="ls")),
        ("```bash\nls```", Shell(command="ls")),
        ("```bash ls -la```", Shell(command="ls -la")),
        ("shell: ```bash\nls\n```\nfinish: ```finish\ndone\n```", Shell(command="ls")),
        ("  ```bash\n  ls\n  ```", Shell(command="ls")),
        ("```bash\nls\n```\n```finish\ndone\n```", Shell(command="ls")),
        ("```bash\nls\n```\n\n```bash\necho TASK_DONE\n```", Shell(command="ls")),
        ("```bash\nls \n\n```", Shell(command="ls \n")),
        ("```bash\n$ ls\n```", Shell(command="$ ls")),
        ("````bash\ncat > f <<'EOF'\n```\nEOF\n````\n", Shell(command="cat > f <<'EOF'\n```\nEOF")),
        ("````finish\nSo:\n```sh\nls\n```\n````", Finish(answer="So:\n```sh\nls\n```")),
        ("```write_file a\n    ```\n```", WriteFile(path="a", content="    ```\n")),
        ("The output will be:\n```\nx\n```\n```bash\nls\n```", Shell(command="ls")),
        ("```console\n$ ls\na b\n$ pwd\n```", Shell(command="ls\npwd")),
        ("```python\nprint(1)\n```", Shell(command="python3 - <<'END'\nprint(1)\nEND")),
        ("```python\nx = '''\nEND\n'''\n```", Shell(command="python3 - <<'END_'\nx = '''\nEND\n'''\nEND_")),
        ("```bash\necho $((x << y))\n```", Shell(command="echo $((x << y))")),
        ("```finish\n42\n```", Finish(answer="42")),
        ("```bash\nfinish 'all done'\n```", Shell(command="finish 'all done'")),
        ("```write_file a b.txt\nx\n\ny\n```", WriteFile(path="a b.txt", content="x\n\ny\n")),
        ("```write_file\na.txt\nx\n```", WriteFile(path="a.txt", content="x\n")),
        ("```write_file path='a.txt'\nx\n```", WriteFile(path="a.txt", content="x\n")),
        ("````write_file R\n#\n```sh\nls\n```\nend\n````", WriteFile(path="R", content="#\n```sh\nls\n```\nend\n")),
        ("```read_file a.txt\n```", ReadFile(path="a.txt")),
        ("```read_file a.txt\n2-9\n```", ReadFile(path="a.txt", start=2, end=9)),
        ("```edit_file f\n<<<<<<< OLD\na\n=======\nb\n>>>>>>> NEW\n```", EditFile(path="f", old="a", new="b")),
        ('```json\n{"tool": "shell", "command": "ls"}\n```', Shell(command="ls")),
        ('{"tool": "shell", "command": "ls"}', Shell(command="ls")),
        ("<think>```bash\nrm -rf .\n```</think>```bash\nls\n```", Shell(command="ls")),
    ],
)  # fmt: skip
def test_reads(content: str, action: Action) -> None:
    assert read(content).steps == (Step(action=action),)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "empty"),
        ("I would list the files.", "no block"),
        ("```\n\nYour answer must have three paragraphs.", "no action"),
        ("```bash\n\n```", "block is empty"),
        ("```sql\nselect 1\n```", "sql"),
        ("The output is:\n```\n1\n2\n```", "no action"),
        ("Run it:\n```\nls\n```", "no action (its blocks are in: no language): write the command in one bash block"),
        ("```bash\ncat > f <<'EOF'\nx\n```", "here-document"),
        ("```write_file\n```", "path is missing"),
        ("```bash\nls\n```bash\nrm x\n```", "longer fence"),
        ("```bash\ncat > f <<'EOF'\n```\nx\n```\nEOF\nls\n```", "longer fence"),
        ("```write_file R\n#\n```sh\nls\n```\nend\n```", "longer fence"),
        ("```write_file R\n#\n```\nls\n```\nend\n```", "longer fence"),
        ("```finish\nSo:\n```\nls\n```\n```", "longer fence"),
        ("```edit_file f\nx\n```", "OLD"),
        ("```ask_user\nwhat?\n```", "there is no tool"),
        ("```finish\nTHE ANSWER\n```", "THE ANSWER stands for your own words"),
        ("<think>```bash\nls\n```", "empty"),
    ],
)
def test_refuses_in_words(content: str, words: str) -> None:
    with pytest.raises(UnreadableAnswer) as caught:
        read(content)
    assert words in caught.value.message


def test_the_end_stands_last_in_what_the_model_is_told() -> None:
    told = PROTOCOL.instructions(("shell", "finish", ToolSpec(name="roots", description="", parameters={})))
    assert told.index("```bash") < told.index("```roots") < told.index("```finish")


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ((ToolSpec(name="roots", description="", parameters={}), "finish"), "such as ```roots"),
        (("finish",), "such as ```finish"),
    ],
)
def test_without_a_shell_no_command_is_asked_for(tools: tuple[Offered, ...], words: str) -> None:
    for content in ("", "I would call it."):
        with pytest.raises(UnreadableAnswer) as caught:
            read(content, tools)
        assert words in caught.value.message
        assert "bash" not in caught.value.message


def test_the_history_holds_the_first_block_only() -> None:
    answer = read("I look.\n```bash\nls\n```\nAnd then:\n```bash\nrm x\n```")
    assert PROTOCOL.write(answer).content == "I look.\n```bash\nls\n```"


@pytest.mark.parametrize(
    "action",
    [
        AskUser(question="Which?\n```"),
        SubTask(task="do"),
        SubTask(task="do", max_turns=3),
        Shell(command="finish"),
        Shell(command="ls\n"),
        Shell(command="cat <<EOF", timeout_s=3),
        WriteFile(path="a\nb", content="x\n"),
        WriteFile(path="'a'", content="x"),
        WriteFile(path="a", content="\n"),
        WriteFile(path="a", content="\n\n```\n"),
        EditFile(path="f", old="a\n=======\nb", new="c"),
        EditFile(path="f", old="a\n", new="\n"),
    ],
    ids=repr,
)
def test_what_a_block_cannot_say_is_kept_exactly(action: Action) -> None:
    message = PROTOCOL.write(Answer(steps=(Step(action=action),)))
    tools = (*TOOLS, "ask_user", "sub_task")
    assert PROTOCOL.read(ModelAnswer(content=message.content), tools).steps[0].action == action


def test_a_second_command_is_not_even_written() -> None:
    assert PROTOCOL.constrain(ModelRequest(messages=()), TOOLS).stop == ("```\n\n```bash",)
