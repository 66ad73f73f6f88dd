"""Tool files as people write them: right, wrong, hostile, and Microbots'."""

from pathlib import Path

import pytest

from stockade.core.errors import UsageError
from stockade.tools.tool_files import MAX_FILE_BYTES, CommandTool, ToolDefinition, read_tool, shipped

FULL = """
name = "tidy"
description = "tidies"
usage = "tidy FILE"
install = ["apt-get install -y tidy", "ln -s tidy /usr/bin/t"]
verify = "tidy --version"
setup = ["mkdir -p /tmp/tidy"]
uninstall = ["rm -r /tmp/tidy"]
environment = { A = "1" }
pass_environment = ["TOKEN"]
files = [{ host = "tidy.conf", inside = "/etc/tidy.conf", mode = "600" }]
hosts = ["apt", "example.org:443"]
runtime_hosts = ["example.org"]
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read_tool(path)
    assert "\n" not in caught.value.message
    return str(caught.value)


def test_every_key_of_a_tool(tmp_path: Path) -> None:
    tool = read_tool(written(tmp_path / "tidy.toml", FULL))
    assert tool.install == ("apt-get install -y tidy", "ln -s tidy /usr/bin/t")
    assert tool.verify == ("tidy --version",)
    assert (tool.environment, tool.pass_environment) == ({"A": "1"}, ("TOKEN",))
    assert tool.files[0].installed
    assert tool.folder == str(tmp_path)
    assert tool.needs_layer


def test_yaml_says_the_same(tmp_path: Path) -> None:
    text = "name: tidy\nusage: |\n  tidy FILE\ninstall:\n  - apt-get install -y tidy\nenvironment: [A=1, TOKEN]\n"
    tool = read_tool(written(tmp_path / "tidy.yaml", text))
    assert tool.install == ("apt-get install -y tidy",)
    assert (tool.environment, tool.pass_environment) == ({"A": "1"}, ("TOKEN",))


def test_a_tool_file_of_microbots_is_read(tmp_path: Path) -> None:
    text = """
name: cscope
description: a browser
tool_type: internal
usage_instructions_to_llm: |
  cscope -dL
parameters:
install_commands:
  - apt-get install -y cscope
verify_commands:
  - cscope --version
setup_commands: []
uninstall_commands:
  - apt-get remove -y cscope
env_variables: []
files_to_copy:
  - src: a.py
    dest: /usr/local/bin/a.py
    permissions: 7
"""
    tool = read_tool(written(tmp_path / "cscope.yml", text))
    assert (tool.usage, tool.external) == ("cscope -dL\n", False)
    assert tool.uninstall == ("apt-get remove -y cscope",)
    assert (tool.files[0].host, tool.files[0].inside, tool.files[0].mode) == ("a.py", "/usr/local/bin/a.py", "770")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('name = "a"\ninstal = ["x"]', "did you mean install?"),
        ('name = "a"\nfiles = [{ hst = "x", inside = "/usr/x" }]', "did you mean host?"),
        ('name = "a b"', "name:"),
        ('name = "a"\ninstall = [""]', "empty"),
        ('name = "a"\nenvironment = { "A=B" = "1" }', "not the name of a variable"),
        ('name = "a"\nenvironment = { A = 1 }', "environment.A"),
        ('name = "a"\nfiles = [{ host = "x", inside = "/usr/../etc/x" }]', "without '..'"),
        ('name = "a"\nfiles = [{ host = "x", inside = "usr/x" }]', "absolute"),
        ('name = "a"\nexternal = true', "needs a command"),
        ('name = "a"\nexternal = true\ncommand = ["ls"]\ninstall = ["x"]', "has no install"),
        ('name = "a"\ncommand = ["ls"]', "has no command"),
        ('name = "a"\nexternal = true\ncommand = ["ls", "{path}"]', "none of the parameters"),
        ('name = "a"\nexternal = true\ncommand = ["{p}"]\nparameters.p = {}', "cannot be chosen by the bot"),
        ('name = "a"\nexternal = true\ncommand = ["ls"]\nparameters.p = {}', "not used"),
        (
            'name = "a"\nexternal = true\ncommand = ["ls", "{p}"]\nparameters.p = { typ = "string" }',
            "did you mean type?",
        ),
        ('name = "a"\ntool_type = "both"', "internal or external"),
        ('name = "a"\nusage = "x"\nusage_instructions_to_llm = "y"', "say the same"),
        ("name =", "not a tool file"),
        ("", "name:"),
    ],
)
def test_what_is_wrong_is_said_on_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path / "a.toml", text)
    words = refusal(path)
    assert said in words
    assert str(path) in words


def test_hostile_files_are_refused(tmp_path: Path) -> None:
    assert "not a tool file" in refusal(
        written(tmp_path / "a.yaml", "!!python/object/apply:os.system ['touch /tmp/x']")
    )
    assert "not a table" in refusal(written(tmp_path / "b.yaml", "- a\n- b\n"))
    assert "not a tool file" in refusal(written(tmp_path / "c.yaml", "name: {" * 20000))
    assert "larger than" in refusal(written(tmp_path / "d.toml", "#" * (MAX_FILE_BYTES + 1)))
    (tmp_path / "e.toml").write_bytes(b"name = '\xff'")
    assert "not a tool file" in refusal(tmp_path / "e.toml")
    assert "cannot read" in refusal(tmp_path / "missing.toml")
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
    )
    assert "has no 'a'" in refusal(written(tmp_path / "f.yaml", bomb))


def test_the_tools_that_come_with_us_are_sound() -> None:
    tools = {name: read_tool(path) for name, path in shipped().items()}
    assert {"ripgrep", "tesseract", "cscope", "ffmpeg"} <= set(tools)
    for name, tool in tools.items():
        assert tool.name == name
        assert tool.usage
        assert tool.verify
        assert tool.description
        assert tool.hosts == ("apt",)


def test_a_definition_in_python_is_a_tool() -> None:
    tool = ToolDefinition(
        name="rg",
        installation_command="apt-get install -y ripgrep",
        verification_command="rg --version",
        usage_instructions="rg PATTERN PATH",
    ).tool()
    assert isinstance(tool, CommandTool)
    assert (tool.install, tool.verify) == (("apt-get install -y ripgrep",), ("rg --version",))
    assert "apt" in tool.hosts
    assert ToolDefinition(name="x", usage_instructions="x").tool().hosts == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[setup]\ncommands = ['true']\nfiles = ['../../etc/passwd']\n", "is not in the project"),
        ("[setup]\ncommands = ['true']\nfiles = ['/etc/passwd']\n", "is not in the project"),
        ("[setup]\ncommands = ['true']\nfile = ['a']\n", "[setup] has no 'file'"),
        ("[setup]\nfiles = ['a']\n", "commands"),
        ("setup = 3\n", "setup"),
    ],
)
def test_a_setup_that_is_none(text: str, words: str, tmp_path: Path) -> None:
    assert words in refusal(written(tmp_path / "stockade.toml", text))


def test_a_setup_takes_no_file_by_a_link_out_of_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "key").write_text("secret")
    (project / "lock").symlink_to(tmp_path / "key")
    text = "[setup]\ncommands = ['true']\nfiles = ['lock']\n"
    assert "leads out of the folder" in refusal(written(project / "stockade.toml", text))
