"""The examples in four languages: built from packages, called in the sandbox (make test-wasm; minutes)."""

import os
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

from stockade.core.errors import UsageError
from stockade.plugins.wasm.build import WIT, build
from stockade.plugins.wasm.prepare import prepared
from stockade.plugins.wasm.toolbox import WasmToolbox, with_tool
from stockade.runtime.sandboxes import own_sandbox
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.policy import FolderRule, Network, Policy
from tests.support import wasm
from tests.support.site import site, to_loopback
from tests.support.toolchains import HOME, toolchains

pytestmark = [pytest.mark.anyio, pytest.mark.toolchain]
EXAMPLES = Path(__file__).parents[2] / "examples" / "wasm"
PHRASE = "Something to echo"
ADAPTER = HOME / "node_modules/@bytecodealliance/jco/lib/wasi_snapshot_preview1.reactor.wasm"


@pytest.fixture(autouse=True)
def _toolchains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{toolchains()}:{os.environ['PATH']}")


@pytest.mark.parametrize("source", ["echo-c/echo.c", "echo-js/echo.js", "echo-rust/echo.rs"])
async def test_echo_in_c_javascript_and_rust(tmp_path: Path, source: str) -> None:
    copied = Path(shutil.copy(str(EXAMPLES / source), str(tmp_path)))
    component = await prepared(build(copied, adapter=ADAPTER if copied.suffix == ".rs" else None), own_sandbox)
    async with wasm.toolbox(tmp_path, component) as box:
        assert (await box.ask("Echo", {"value": PHRASE})).text == PHRASE
        assert (await box.ask("Echo", {"value": ""})).status == "success"
        assert (await box.ask("Echo", {"value": "é" * 10_000})).text == "é" * 10_000


async def test_the_committed_echo_is_what_its_source_gives(tmp_path: Path) -> None:
    built = build(Path(shutil.copy(str(EXAMPLES / "echo-c/echo.c"), str(tmp_path))))
    assert await _text(built, tmp_path, "Echo", {"value": PHRASE}) == await _text(
        wasm.ECHO, tmp_path, "Echo", {"value": PHRASE}
    )


async def _text(path: Path, base: Path, name: str, arguments: dict[str, Any]) -> str:
    async with wasm.toolbox(base, await prepared(path, own_sandbox)) as box:
        return (await box.ask(name, arguments)).text


async def test_the_reactor_adapter_is_used_where_a_tool_needs_wasi(tmp_path: Path) -> None:
    """The llama.cpp agent's own way: a core module for the first WASI, adapted."""
    text = (WIT / "llama-cpp-tool" / "tool.c").read_text()
    source = tmp_path / "loud.c"
    source.write_text("#include <stdio.h>\n" + text.replace("run(void) {", 'run(void) { puts("x");'))
    component = await prepared(build(source, adapter=ADAPTER), own_sandbox)
    assert any(name.startswith("wasi:cli/stdout") for name in component.imports)
    async with wasm.toolbox(tmp_path, component) as box:
        assert (await box.ask("Echo", {"value": PHRASE})).text == PHRASE


async def test_csv_query_in_python_reads_the_folder_of_its_policy_only(tmp_path: Path) -> None:
    source = Path(shutil.copytree(EXAMPLES / "csv-query", tmp_path / "csv-query")) / "csv_query.py"
    source.write_text(
        source.read_text().replace("        return len(rows)", "        print('counted')\n        return len(rows)")
    )
    built = build(source)
    data = tmp_path / "data"
    data.mkdir()
    (data / "people.csv").write_text("name,city\nAda,London\nKurt,Wien\nÉmile,Paris\n")
    component = await prepared(built, own_sandbox)
    assert "CSV file" in component.tools[0].spec.description
    async with wasm.toolbox(tmp_path, component, folders=(FolderRule(host=str(data), mode="ro"),)) as box:
        path = "/workspace/people.csv"
        found = await box.ask("csv_query_query", {"path": path, "column": "city", "equals": "Paris"})
        assert found.text == '[{"cells": [["name", "Émile"], ["city", "Paris"]]}]'
        counted = await box.ask("csv_query_columns", {"path": path})
        assert (counted.text, counted.printed) == ('[3, ["name", "city"]]', "counted")
        told = await box.call("csv_query_columns", {"path": path})
        assert told.text == f"{counted.text}\nThe tool printed:\ncounted"
        wrong = await box.ask("csv_query_query", {"path": path, "column": "age"})
        assert (wrong.status, "the columns are: name, city" in wrong.text) == ("error", True)
        for other in ("/etc/passwd", "/workspace/../etc/passwd", "/proc/self/environ"):
            assert (await box.ask("csv_query_columns", {"path": other})).status == "error"


async def test_http_get_in_javascript_asks_its_host_and_no_other(tmp_path: Path) -> None:
    built = build(Path(shutil.copytree(EXAMPLES / "http-get", tmp_path / "http-get")) / "http_get.js")
    policy_file = built.with_suffix(".policy.yaml")
    policy_file.write_text(policy_file.read_text().replace("example.com", "good.test"))
    served = tmp_path / "site"
    served.mkdir()
    (served / "page").write_text("hello\n")
    component = await prepared(built, own_sandbox)
    with site(served, None) as port:
        policy = with_tool(component, Policy(network=Network(mode="allow", hosts=(f"good.test:{port}",))))
        base = tmp_path / "box"
        sandbox = BubblewrapSandbox(policy, prepare_layers(policy, base), base, egress=to_loopback)
        async with sandbox, WasmToolbox((component,), sandbox, policy) as box:
            page = await box.ask("http_get_get", {"url": f"http://good.test:{port}/page"})
            missing = await box.ask("http_get_get", {"url": f"http://good.test:{port}/none"})
            other = await box.ask("http_get_get", {"url": "http://example.com/"})
    assert (page.status, page.text) == ("data", "hello\n")
    assert (missing.status, "answered 404" in missing.text) == ("error", True)
    assert (other.status, "not in the tool's policy" in other.text) == ("error", True)


FETCHES = """export async function get(url) {
  try { return await (await fetch(url)).text(); } catch (error) { throw String(error.message); }
}
"""
MAKES = """import {{ componentize }} from "file://{js}/src/componentize.js";
import {{ readFile, writeFile }} from "node:fs/promises";
const source = await readFile("page.js", "utf8");
const how = {{ sourceName: "page", witPath: "wit", worldName: "page", enableFeatures: ["http"] }};
await writeFile("page.wasm", (await componentize(source, how)).component);
"""
WORLD = """package example:page@0.1.0;
world page { export get: func(url: string) -> result<string, string>; }
"""


async def test_wasi_http_asks_whom_the_run_may_ask_and_is_on_record(tmp_path: Path) -> None:
    (tmp_path / "wit").mkdir()
    (tmp_path / "wit" / "page.wit").write_text(WORLD)
    (tmp_path / "page.js").write_text(FETCHES)
    (tmp_path / "make.mjs").write_text(MAKES.format(js=HOME / "node_modules/@bytecodealliance/componentize-js"))
    await anyio.run_process(["node", "make.mjs"], cwd=tmp_path)
    with pytest.raises(UsageError, match="which knows no list of hosts"):
        await prepared(tmp_path / "page.wasm", own_sandbox)
    everybody = 'permissions: {network: {allow: [{host: "*"}]}}\nlimits: {timeout_s: 20}\n'
    (tmp_path / "page.policy.yaml").write_text(everybody)
    served, requests = tmp_path / "site", list[tuple[str, str]]()
    served.mkdir()
    (served / "page").write_text("hello\n")
    component = await prepared(tmp_path / "page.wasm", own_sandbox)
    with site(served, None) as port:
        policy = with_tool(component, Policy(network=Network(mode="allow", hosts=(f"good.test:{port}",))))
        base = tmp_path / "box"
        sandbox = BubblewrapSandbox(policy, prepare_layers(policy, base), base, egress=to_loopback)
        sandbox.on_network = lambda one: requests.append((one.host, one.verdict))
        async with sandbox, WasmToolbox((component,), sandbox, policy) as box:
            page = await box.ask("page_get", {"url": f"http://good.test:{port}/page"})
            other = await box.ask("page_get", {"url": f"http://other.test:{port}/page"})
    assert (page.status, page.text) == ("data", "hello\n")
    assert other.status == "error"
    assert requests == [("good.test", "allowed"), ("other.test", "refused")]
