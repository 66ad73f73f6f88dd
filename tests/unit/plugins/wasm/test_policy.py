"""Policy files: wassette's keys and ours, nothing passed over, never more than the run has."""

from dataclasses import replace
from pathlib import Path

import pytest

from stockade.core.errors import UsageError
from stockade.plugins.wasm.policy import (
    beside,
    check_network,
    environment_of,
    folders_of,
    read_policy,
)
from stockade_sandbox.policy import FolderRule, Network, Policy

WASSETTE = """
version: "1.0"
description: "Permission policy for fetch-rs"
permissions:
  network:
    allow:
      - host: "https://rss.nytimes.com/"
      - host: "api.example.com:8443"
  storage:
    allow:
      - uri: "fs:///workspace/data"
        access: ["read", "write"]
      - uri: "fs://logs"
        access: ["read"]
  environment:
    allow:
      - key: "API_KEY"
limits: {memory: 64M}
"""
RUN = Policy(
    folders=(
        FolderRule(host="/home/me/p", mode="overlay"),
        FolderRule(host="/data", mode="ro", inside="/folders/data"),
    ),
    environment={"API_KEY": "k", "OTHER": "o"},
)


def _read(tmp_path: Path, text: str, name: str = "t.policy.yaml") -> object:
    path = tmp_path / name
    path.write_text(text)
    return read_policy(path)


def test_wassettes_keys_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "fetch.policy.yaml"
    path.write_text(WASSETTE)
    policy = read_policy(path)
    assert [(host.host, host.port) for host in policy.hosts] == [
        ("rss.nytimes.com", None),
        ("api.example.com", 8443),
    ]
    assert policy.limits.memory_bytes == 64 << 20
    assert policy.variables == ("API_KEY",)
    assert folders_of(policy, RUN, "t") == (
        ("/workspace/data", "/workspace/data", True),
        ("/workspace/logs", "/workspace/logs", False),
    )
    assert environment_of(policy, RUN, "t") == {"API_KEY": "k"}


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    toml = _read(tmp_path, "limits = {timeout_s = 2, memory = '8M'}", "t.policy.toml")
    json = _read(tmp_path, '{"limits": {"timeout_s": 2, "memory": "8M"}}', "t.policy.json")
    yaml = _read(tmp_path, "limits: {timeout_s: 2, memory: 8M}\npermissions:\n")
    assert toml == json == yaml


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("permissions: {network: {allow: [{cidr: 10.0.0.0/8}]}}", "network.allow.0"),
        ("permissions: {ipc: {allow: []}}", "permissions.ipc"),
        ("permissions: {storage: {deny: [{uri: 'fs:///x'}]}}", "storage.deny"),
        ("permissions: {network: {deny: [{host: a.example}]}}", "network.deny"),
        ("permissions: {resources: {limits: {memory: 64Mi}}}", "permissions.resources"),
        ("permissions: {storage: {allow: [{uri: 'fs:///x/../y', access: [read]}]}}", "fs://PATH"),
        ("permissions: {storage: {allow: [{uri: 'file:///x', access: [read]}]}}", "fs://PATH"),
        ("permissions: {storage: {allow: [{uri: 'fs:///x', access: [execute]}]}}", "access"),
        ("permissions: {environment: {allow: [{key: 'A B'}]}}", "key"),
        ("permissions: {network: {allow: [{host: '*x'}]}}", "host name"),
        ("limits: {timeout_s: 0}", "timeout_s"),
        ("limits: {memory: lots}", "not a size"),
        ("limits: {memory: 999G}", "memory_bytes"),
        ("permisions: {}", "permisions"),
        ("- 1", "holds no keys"),
        ("a: &a [1]\nb: *a", "aliases"),
        ("{", "cannot be understood"),
        ("!!python/object/apply:os.system ['id']", "cannot be understood"),
        ("x: " + "[" * 5000, "cannot be understood"),
    ],
)
def test_what_is_not_understood_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError) as found:
        _read(tmp_path, text)
    assert words in found.value.message
    assert "\n" not in found.value.message


def test_nothing_is_granted_that_the_run_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "t.policy.yaml"
    path.write_text("permissions: {storage: {allow: [{uri: 'fs:///etc', access: [read]}]}}")
    with pytest.raises(UsageError, match="in no folder of this run"):
        folders_of(read_policy(path), RUN, "t")
    path.write_text("permissions: {storage: {allow: [{uri: 'fs:///folders/data', access: [write]}]}}")
    with pytest.raises(UsageError, match="read-only"):
        folders_of(read_policy(path), RUN, "t")
    path.write_text("permissions: {environment: {allow: [{key: HOME}]}}")
    with pytest.raises(UsageError, match="HOME"):
        environment_of(read_policy(path), RUN, "t")
    path.write_text("permissions: {network: {allow: [{host: a.example}]}}")
    with pytest.raises(UsageError, match="has no network"):
        check_network(read_policy(path), RUN, "t")
    check_network(read_policy(path), replace(RUN, network=Network(mode="open")), "t")


def test_a_path_of_the_host_is_found_where_the_sandbox_has_it(tmp_path: Path) -> None:
    path = tmp_path / "t.policy.yaml"
    path.write_text("permissions: {storage: {allow: [{uri: 'fs:///data/sub', access: [read], mount: /in}]}}")
    assert folders_of(read_policy(path), RUN, "t") == (("/folders/data/sub", "/in", False),)


def test_two_policies_beside_one_component_are_refused(tmp_path: Path) -> None:
    for suffix in ("yaml", "toml"):
        (tmp_path / f"t.policy.{suffix}").write_text("")
    with pytest.raises(UsageError, match="two policies"):
        beside(tmp_path / "t.wasm")
    assert beside(tmp_path / "u.wasm") is None
