"""The one way to the network: the tool's own list of hosts, and behind it the run's."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stockade.plugins.wasm.inside.fetch import Fetch, Refused, allowed
from stockade.plugins.wasm.policy import Host
from stockade.plugins.wasm.toolbox import WasmToolbox, with_tool
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.policy import Network, Policy
from stockade_sandbox.results import NetworkRequest
from tests.support import wasm
from tests.support.site import site, to_loopback

GET = wasm.wasm("""(component
  (import "stockade:tool/http@0.1.0" (instance $http
    (type $q (record (field "method" string) (field "url" string) (field "headers" (list (tuple string string)))
      (field "body" (option string))))
    (export "request" (type $request (eq $q)))
    (type $a (record (field "status" u16) (field "headers" (list (tuple string string))) (field "body" string)))
    (export "response" (type $response (eq $a)))
    (export "fetch" (func (param "request" $request) (result (result $response (error string)))))))
  (core module $memory (memory (export "memory") 4)
    (global $next (mut i32) (i32.const 4096))
    (data (i32.const 16) "GET")
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
      (global.set $next (i32.add (local.get $at) (local.get 3)))
      (local.get $at)))
  (core instance $own (instantiate $memory))
  (core func $fetch (canon lower (func $http "fetch")
    (memory (core memory $own "memory")) (realloc (core func $own "realloc"))))
  (core module $m
    (import "own" "memory" (memory 1))
    (import "http" "fetch" (func $fetch (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))
    (func (export "get") (param i32 i32) (result i32)
      (call $fetch (i32.const 16) (i32.const 3) (local.get 0) (local.get 1) (i32.const 0) (i32.const 0)
        (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1024))
      (i32.store8 (i32.const 2048) (i32.load8_u (i32.const 1024)))
      (if (i32.load8_u (i32.const 1024))
        (then (i64.store (i32.const 2052) (i64.load (i32.const 1028))))
        (else (i64.store (i32.const 2052) (i64.load (i32.const 1040)))))
      (i32.const 2048)))
  (core instance $i (instantiate $m
    (with "own" (instance $own)) (with "http" (instance (export "fetch" (func $fetch))))))
  (func (export "get") (param "url" string) (result (result string (error string)))
    (canon lift (core func $i "get") (memory (core memory $own "memory")) (realloc (core func $own "realloc")))))""")
POLICY = "permissions: {network: {allow: [{host: good.test}, {host: elsewhere.test}]}}\nlimits: {http: 4K}"


@pytest.mark.anyio
async def test_a_component_asks_through_the_runs_own_way_out(tmp_path: Path) -> None:
    served = tmp_path / "site"
    served.mkdir()
    (served / "page").write_text("hello\n")
    (served / "large").write_text("x" * 5000)
    component = await wasm.opened(tmp_path, GET, POLICY, name="get")
    seen: list[NetworkRequest] = []
    with site(served, None) as port:
        policy = with_tool(component, Policy(network=Network(mode="allow", hosts=(f"good.test:{port}",))))
        base = tmp_path / "box"
        sandbox = BubblewrapSandbox(policy, prepare_layers(policy, base), base, egress=to_loopback)
        sandbox.on_network = seen.append
        async with sandbox, WasmToolbox((component,), sandbox, policy) as box:
            page = await box.ask("get", {"url": f"http://good.test:{port}/page"})
            large = await box.ask("get", {"url": f"http://good.test:{port}/large"})
            unlisted = await box.ask("get", {"url": f"http://127.0.0.1:{port}/page"})
            not_of_the_run = await box.ask("get", {"url": "http://elsewhere.test/page"})
            file = await box.ask("get", {"url": "file:///etc/passwd"})
    assert (page.status, page.text) == ("data", "hello\n")
    assert "larger than 4096 bytes" in large.text
    assert "not in the tool's policy" in unlisted.text
    assert "hello" not in not_of_the_run.text
    assert "no http or https address" in file.text
    assert {event.host for event in seen} == {"good.test", "elsewhere.test"}


@pytest.mark.parametrize(
    ("url", "method", "good"),
    [
        ("https://api.example.com/x", "GET", True),
        ("https://API.example.com./x", "GET", True),
        ("https://api.example.com/x", "POST", False),
        ("http://api.example.com/x", "GET", False),
        ("https://api.example.com:8443/x", "GET", False),
        ("https://a.b.example.org/x", "POST", True),
        ("https://example.org/x", "POST", False),
        ("https://evilexample.org/x", "POST", False),
        ("https://api.example.com@evil.test/", "GET", False),
        ("https://evil.test#@api.example.com/", "GET", False),
        ("https://evil.test\\@api.example.com/", "GET", False),
        ("https://api.example.com:99999/", "GET", False),
        ("https://[::1]/", "GET", False),
        ("ftp://api.example.com/", "GET", False),
        ("//api.example.com/", "GET", False),
        ("", "GET", False),
        ("https://api.example.com/a b\r\nHost: evil.test", "GET", False),
    ],
)
def test_which_addresses_are_the_policys(url: str, method: str, good: bool) -> None:
    rules = [
        Host.model_validate({"host": "https://api.example.com:443", "methods": ["GET"]}).model_dump(),
        Host.model_validate({"host": "*.example.org"}).model_dump(),
    ]
    if good:
        assert allowed(url, rules, method).startswith(("https://api.example.com:443/", "https://a.b.example.org:443/"))
    else:
        with pytest.raises(Refused):
            allowed(url, rules, method)


def test_without_a_way_out_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    request: Any = SimpleNamespace(method="GET", url="http://a.example/", headers=[], body=None)
    assert Fetch([Host(host="a.example").model_dump()], 1000, 1.0)(None, request) == "this run has no network"
