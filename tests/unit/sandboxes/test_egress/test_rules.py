"""Names in every spelling, and the list."""

import socket
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.core.errors import UsageError
from stockade_sandbox.egress.rules import (
    MAX_PORTS,
    Refused,
    Rules,
    Target,
    address_of,
    host_name,
    parse_authority,
    shown,
)
from stockade_sandbox.policy import PROXY_PORT, Network, parse_network, policy_of

ADDRESSES = (
    "127.0.0.1", "2130706433", "0x7f000001", "0X7F000001", "017700000001", "0177.0.0.1", "127.1", "1.2.3", "0", "0x",
    "1.2.3.4.", "example.1", "example.0x1f", "[::1]", "::1", "::ffff:127.0.0.1", "[::ffff:7f00:1]", "fe80::1%lo", "[",
    "foo.[::1]", "1e1.9",
)  # fmt: skip
NOT_NAMES = (
    "", ".", "..", "a..b", ".a", "-a.org", "a-.org", "a b.org", "a\x00.org", "a%2eorg", "ex\u00e4mple.org", "a/b",
    "a\\b", "\uff45xample.org", "a" * 64 + ".org", "a." * 127 + "org",
    "a.org..", "*.a.org", "a_\n.org", "a\u3002org",
)  # fmt: skip


def rules(*hosts: str) -> Rules:
    return Rules.of(Network(mode="allow", hosts=hosts))


def refusal(list_: Rules, host: str, port: int = 443) -> str | None:
    try:
        list_.judge(Target(host, port))
    except Refused as refused:
        return refused.reason
    return None


@pytest.mark.parametrize("text", ADDRESSES)
def test_an_address_in_any_spelling_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is an address"):
        host_name(text)


@pytest.mark.parametrize("text", NOT_NAMES)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        host_name(text)


@given(st.text(st.sampled_from("0123456789abcdefxX.[]:"), min_size=1, max_size=20))
def test_whatever_the_c_library_takes_for_an_address_is_refused(text: str) -> None:
    try:
        socket.inet_aton(text)
    except OSError:
        return
    with pytest.raises(Refused):
        host_name(text)


@pytest.mark.parametrize("text", ["PyPI.org", "pypi.org.", "PYPI.ORG."])
def test_one_name_has_one_spelling(text: str) -> None:
    assert host_name(text) == "pypi.org"


@pytest.mark.parametrize(
    "text",
    ["user@a.org:443", "a.org@b.org:443", "a.org:443@b.org", "a.org", "a.org:", "a.org:0", "a.org:080", "a.org:65536",
     "a.org:+80", "a.org: 80", "a.org:80:80", "a.org:\u0664\u0664\u0663", "a.org:80\x00", "a.org\t:80", ":80", "@:80",
     "[::1:80", "[1.2.3.4]:80", "[::1]x:80", "a\xa0.org:80"],
)  # fmt: skip
def test_authorities_that_are_none(text: str) -> None:
    with pytest.raises(Refused):
        parse_authority(text)


def test_a_port_may_be_left_out_where_there_is_a_default() -> None:
    assert parse_authority("A.org", 80) == Target("a.org", 80)
    assert parse_authority("a.org:8080", 80) == Target("a.org", 8080)


def test_the_list_is_exact() -> None:
    found = rules("pypi.org", "*.example.org", "a.org:8443", "*.b.org:99")
    allowed = [("pypi.org", 443), ("pypi.org", 80), ("x.example.org", 443), ("y.x.example.org", 80), ("a.org", 8443)]
    assert [refusal(found, *target) for target in [*allowed, ("x.b.org", 99)]] == [None] * 6
    for host in ("example.org", "notpypi.org", "pypi.org.evil.org", "xexample.org", "www.pypi.org", "b.org"):
        assert refusal(found, host) == f"{host} is not on the --net allow list"
    for host, port in (("pypi.org", 8443), ("a.org", 443), ("x.b.org", 443), ("pypi.org", 22)):
        assert f"{host}:{port}" in (refusal(found, host, port) or "")


@pytest.mark.parametrize(
    ("host", "port", "rule"),
    [
        ("b.org", 443, "b.org"), ("b.org", 80, "b.org"), ("b.org", 8443, "b.org:8443"), ("a.org", 443, "a.org:443"),
        ("a.org", 80, "a.org:80"), ("a.org", 22, "a.org:22"), ("8.8.8.8", 443, "8.8.8.8"), ("::1", 53, "[::1]:53"),
        ("10.0.0.1", 443, "10.0.0.1:443"), ("localhost", 80, "localhost:80"), ("localhost", 443, "localhost:443"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_rule_that_would_do(host: str, port: int, rule: str) -> None:
    found = rules("a.org:8443", "10.0.0.0/8:5432", "localhost:11434")
    with pytest.raises(Refused) as refused:
        found.judge(Target(host, port))
    assert refused.value.allow == rule


def test_localhost_always_needs_its_port() -> None:
    with pytest.raises(Refused) as refused:
        rules("a.org").judge(Target("localhost", 80))
    assert refused.value.allow == "localhost:80"


def test_what_may_be_asked_for_by_its_name() -> None:
    found, everything = rules("a.org:22", "*.corp"), Rules.of(Network(mode="open"))
    assert [name for name in ("a.org", "b.org", "db.corp", "corp", "db.lan") if found.may_name(name)] == [
        "a.org",
        "db.corp",
    ]
    assert [name for name in ("a.org", "db.corp", "printer", "localhost") if everything.may_name(name)] == ["a.org"]


@pytest.mark.parametrize(("host", "port"), [("a.org", 25), ("a.org", 8443)])
def test_open_has_no_rule_for_other_ports(host: str, port: int) -> None:
    with pytest.raises(Refused) as refused:
        Rules.of(Network(mode="open")).judge(Target(host, port))
    assert refused.value.allow == ""


def test_the_agent_listens_where_names_are_and_not_on_the_proxys_own_port() -> None:
    found = rules("a.org:22", "*.b.org:5432", "10.0.0.0/8:6379", "c.org", f"d.org:{PROXY_PORT}")
    assert found.ports == (22, 80, 443, 5432)
    assert Rules.of(Network(mode="open")).ports == Rules.of(Network()).ports == (80, 443)


def test_there_are_only_so_many_ports() -> None:
    most = [f"a.org:{port}" for port in range(1000, 1000 + MAX_PORTS - 2)]
    assert len(rules(*most, "a.org:80", "b.org:443", "10.0.0.0/8:9").ports) == MAX_PORTS
    with pytest.raises(UsageError, match=f"names {MAX_PORTS + 1} ports"):
        rules(*most, "a.org:999")


def test_open_is_every_name_on_two_ports_and_none_is_nothing() -> None:
    everything = Rules.of(Network(mode="open"))
    assert refusal(everything, "a.org") is refusal(everything, "a.org", 80) is None
    assert "port 25" in (refusal(everything, "a.org", 25) or "")
    assert refusal(Rules.of(Network()), "a.org") is not None


def test_a_name_as_a_person_writes_it() -> None:
    assert refusal(rules("B\u00fccher.example"), "xn--bcher-kva.example") is None
    assert refusal(rules("PyPI.ORG."), "pypi.org") is None


@pytest.mark.parametrize(
    "text",
    ["https://pypi.org/", "pypi.org/simple", "*", "*.", "", "10.0.0.1/8", "10.0.0.0/33", "[::1]", "127.0.0.0/8",
     "0.0.0.0/0", "::/0", "::ffff:10.0.0.0/104", "64:ff9b::/96", "[10.0.0.1", "10.0.0.0/8:0", "10.0.0.0/8:x", "1.2.3",
     "169.0.0.0/8", "localhost", "*.10.0.0.1", "2130706433", "0x7f.1", "*.1.2.3.4", "a.*.org", "a.org:x",
     "a.org:0", "stra\u00dfe.de", "user@a.org", "a b.org", "\u200d.org", "a" * 70 + "\u00e4.org"],
)  # fmt: skip
def test_a_rule_that_is_none_is_the_persons_mistake(text: str) -> None:
    with pytest.raises(UsageError, match="--net") as error:
        rules(text)
    assert error.value.hint
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "host"),
    [("10.1.2.3:80", "10.1.2.3"), ("[FD00::0:1]:80", "fd00::1"), ("[2001:DB8:0::7]:80", "2001:db8::7")],
)  # fmt: skip
def test_an_address_has_one_spelling(text: str, host: str) -> None:
    assert parse_authority(text) == Target(host, 80)


def test_addresses_only_when_they_are_named() -> None:
    found = rules("10.0.0.0/8", "192.168.1.7:5432", "[fd00::/64]:8443", "2606:4700::/32", "good.test")
    for host, port in (("10.255.0.1", 443), ("192.168.1.7", 5432), ("fd00::9", 8443), ("2606:4700::1", 80)):
        assert refusal(found, host, port) is None
    for host in ("11.0.0.1", "192.168.1.8", "fd00:0:0:1::9", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::"):
        assert refusal(found, host) == f"{host} is an address that --net does not name"
    assert "only other ports" in (refusal(found, "10.0.0.1", 22) or "")
    assert "[fd00::9]:443 is not on" in (refusal(found, "fd00::9") or "")
    for everything in (Rules.of(Network(mode="open")), Rules.of(Network())):
        assert "is an address" in (refusal(everything, "8.8.8.8") or "")


def test_private_addresses_of_names_only_where_the_name_or_the_address_is_named() -> None:
    def may(found: Rules, host: str, address: str, port: int = 443) -> bool:
        return found.may_be_at(Target(host, port), ip_address(address))

    found = rules("db.internal:5432", "*.home.arpa", "printer:631", "localhost:11434", "pypi.org")
    for host, address in (("db.internal", "10.0.0.1"), ("nas.home.arpa", "fd00::1"), ("printer", "192.168.1.9"),
                          ("localhost", "127.0.0.1"), ("localhost", "::1")):  # fmt: skip
        assert may(found, host, address)
    for host, address in (("pypi.org", "10.0.0.1"), ("other.internal", "10.0.0.1"), ("db.internal", "169.254.169.254"),
                          ("db.internal", "127.0.0.1"), ("localhost", "10.0.0.1"), ("x.arpa", "10.0.0.1")):  # fmt: skip
        assert not may(found, host, address)
    named = rules("git.example.org", "10.9.0.0/16", "10.8.0.5:5432")
    assert may(named, "git.example.org", "10.9.1.1")
    assert not may(named, "git.example.org", "10.8.1.1")
    assert not may(named, "git.example.org", "10.8.0.5"), "the list has another port of it"
    assert not may(Rules.of(Network(mode="open")), "localhost", "127.0.0.1")


@pytest.mark.parametrize("name", ["python", "npm", "github", "debian", "rust", "go"])
def test_the_presets_are_rules(name: str) -> None:
    assert Rules.of(parse_network(f"@{name}")).rules
    assert not any(rule.inner for rule in Rules.of(parse_network(f"@{name}")).rules)


def test_a_preset_of_ones_own_stands_before_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "stockade" / "networks"
    folder.mkdir(parents=True)
    (folder / "python.txt").write_text("# ours\npypi.corp.example.org:8443\n\n10.0.0.0/8  # where that is\n")
    assert parse_network("@python,a.org").hosts == ("pypi.corp.example.org:8443", "10.0.0.0/8", "a.org")
    assert policy_of(None, ["@python"]).network.hosts == ("pypi.corp.example.org:8443", "10.0.0.0/8")
    (folder / "bad.txt").write_bytes(b"\xff\xfe")
    for text, words in (("@bad", "cannot be read"), ("@nothing", "there are @bad, @debian"), ("@../x", "no preset")):
        with pytest.raises(ValueError, match=words):
            parse_network(text)


def test_an_empty_list_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="names no host"):
        rules()


@given(st.text(max_size=200))
def test_pieces_of_requests_are_shown_as_printable_ascii(text: str) -> None:
    assert all(" " <= char <= "~" for char in shown(text))
    assert len(shown(text)) <= 80


@given(st.text(max_size=60))
def test_a_target_is_a_plain_name_or_refused(text: str) -> None:
    try:
        target = parse_authority(text, 80)
    except Refused:
        return
    assert set(target.host) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.:")
    assert str(address_of(target.host) or "") == target.host or host_name(target.host) == target.host
    assert parse_authority(str(target)) == target
