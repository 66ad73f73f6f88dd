"""`stockade tool new`: the beginning of a tool in a language, which builds as it is."""

import re
from pathlib import Path

from stockade.core.errors import UsageError

LANGUAGES = ("python", "js", "c", "rust")
_SUFFIXES = {"python": "py", "js": "js", "c": "c", "rust": "rs"}
_NAME = re.compile(r"^[a-z][a-z0-9-]{0,40}$")

_WIT = """package my:{name}@0.1.0;

world {name} {{
  /// What the tool does, in a sentence for the model.
  /// text: what this argument is for
  export run: func(text: string) -> result<string, string>;
}}
"""
_PYTHON = '''"""A tool: each function of the world is one. Raise Err for what the model should hear of as an error."""

import wit_world
from componentize_py_types import Err


class WitWorld(wit_world.WitWorld):
    def run(self, text: str) -> str:
        if not text:
            raise Err("text is empty")
        return text.upper()
'''
_JS = """// A tool: each function of the world is one. What is thrown is told to the model as an error.
export function run(text) {
  if (text === "") throw "text is empty";
  return text.toUpperCase();
}
"""
_POLICY = """# What this tool may do: nothing. See docs/wasm.md for folders, hosts and variables.
version: "1.0"
permissions: {}
limits: {timeout_s: 10, memory: 256M}
"""


def scaffold(name: str, language: str, where: Path) -> tuple[Path, ...]:
    """Writes the files of a new tool into a new folder of its name. UsageError when it is there already."""
    if not _NAME.match(name):
        raise UsageError(f"{name!r} cannot be a tool's name", "small letters, digits and -, beginning with a letter")
    if language not in LANGUAGES:
        raise UsageError(f"there is no beginning in {language!r}", f"languages are {', '.join(LANGUAGES)}")
    folder, source = where / name, f"{name.replace('-', '_')}.{_SUFFIXES[language]}"
    files = {f"{name}.policy.yaml": _POLICY}
    if language in ("c", "rust"):
        files[source] = _of_tool_world(name, _SUFFIXES[language])
    else:
        files[f"{name}.wit"] = _WIT.format(name=name)
        files[source] = _PYTHON if language == "python" else _JS
    try:
        folder.mkdir()
        for file, text in files.items():
            (folder / file).write_text(text)
    except FileExistsError:
        raise UsageError(f"{folder} is there already", "choose another name") from None
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from None
    return tuple(folder / file for file in files)


def _of_tool_world(name: str, suffix: str) -> str:
    """The tool world, which needs no generated bindings: our example under another name."""
    text = (Path(__file__).parent / "wit" / "llama-cpp-tool" / f"tool.{suffix}").read_text()
    for before, after in (('TEXT("Echo")', f'TEXT("{name}")'), ('text("Echo")', f'text("{name}")')):
        text = text.replace(before, after)
    return text.replace("USE_TOOL: Echo", f"USE_TOOL: {name}")
