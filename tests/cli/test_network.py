"""`--net` from the flag to the record."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import DONE, Stage
from tests.cli.test_approve import at_terminal
from tests.support.engines import engine_environment
from tests.support.site import certificates, site
from tests.support.upstream import AUTHORIZATION, IN_URL, PASSWORD, Upstream, upstream

METADATA = "http://169.254.169.254/"
REASON = "169.254.169.254 is an address that --net does not name"


@pytest.mark.parametrize(("net", "urls"), [("good.test", ("http://evil.test/", METADATA)), ("open", (METADATA,))])
def test_refusals_are_said_shown_recorded_and_counted(stage: Stage, net: str, urls: tuple[str, ...]) -> None:
    ask = say("shell", command=f"curl -sS {' '.join(urls)}")
    ended = stage.call("run", "x", "--folder", str(stage.demo), "--model", stage.script(ask, DONE), "--net", net)
    assert ended.status == 0, ended.err
    assert f"stockade: {REASON}" in ended.err
    assert f"[network refused: GET 169.254.169.254:80: {REASON}]" in ended.err
    events = [json.loads(line) for line in stage.call("runs", "show", "--json").out.splitlines()]
    found = [event["host"] for event in events if event["type"] == "network_requested"]
    assert found == ["evil.test", "169.254.169.254"][-len(urls) :]
    assert f"0 requests, {len(urls)} refused" in stage.call("runs", "show").out
    wanted = ["evil.test", "169.254.169.254"][-len(urls) :]
    told = ", ".join(f"{one} (1)" for one in wanted)
    assert f"refused: {told}  allow with --net {','.join(wanted)}" in ended.err
    listed = "[network refused: GET evil.test:80: evil.test is not on the --net allow list]"
    assert (listed in ended.err) is (net != "open")


@pytest.mark.parametrize("backend", ["docker", "podman", "gvisor"])
def test_it_is_the_same_on_every_backend(stage: Stage, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend != "gvisor":
        for name, value in engine_environment(backend).items():
            monkeypatch.setenv(name, value)
    ask = say("shell", command=f"curl -sS http://evil.test/ {METADATA}")
    words = ("run", "x", "--sandbox", backend, "--model", stage.script(ask, DONE), "--net", "good.test")
    ended = stage.call(*words)
    assert ended.status == 0, ended.err
    assert f"stockade: {REASON}" in ended.err
    assert f"[network refused: GET 169.254.169.254:80: {REASON}]" in ended.err
    assert "0 requests, 2 refused" in stage.call("runs", "show").out


def test_unconfined_cannot_limit_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOCKADE_ALLOW_ROOT_UNCONFINED", "1")
    ended = stage.call("run", "x", "--sandbox", "unconfined", "--model", stage.script(DONE), "--net", "open")
    assert ended.status == 4
    assert "cannot be limited" in ended.err


def test_a_sandbox_without_a_network_has_no_proxy(stage: Stage) -> None:
    ended = stage.call("sandbox", "exec", "--", "sh", "-c", "env; cat /proc/net/tcp")
    assert "proxy" not in ended.out
    assert ":0C38" not in ended.out


def test_a_program_keeps_its_streams_and_what_was_refused_is_told_after_it(stage: Stage) -> None:
    names = ("evil.test", "a.evil.test", "169.254.169.254")
    script = f"curl -sS {' '.join(f'http://{name}/' for name in names)} | cut -c1-9; printf own >&2"
    ended = stage.call("sandbox", "exec", "--net", "good.test", "--", "sh", "-c", script)
    assert (ended.status, ended.out) == (0, "stockade:\n" * 3)
    told = ", ".join(f"{name} (1)" for name in names)
    assert ended.err == f"ownstockade: refused: {told} allow with --net {','.join(names)}\n"


@contextmanager
def company(stage: Stage) -> Iterator[Upstream]:
    """A proxy that alone knows where good.test is, by HTTP and HTTPS."""
    root = stage.tmp_path / "site"
    root.mkdir()
    (root / "page").write_text("hello\n")
    certificates(stage.tmp_path)
    with site(root, None) as plain, site(root, stage.tmp_path / "site.pem") as tls:
        with upstream({"good.test": plain, "good.test:443": tls}) as found:
            yield found


def test_the_users_proxy_is_the_next_hop_and_its_password_stays_outside(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    curl = "curl -sS http://good.test/page; curl -sSk https://good.test/page"
    script = f"{curl}; unset http_proxy https_proxy HTTPS_PROXY; {curl}; env; cat /proc/*/environ"
    with company(stage) as found:
        monkeypatch.setenv("HTTPS_PROXY", found.url)
        monkeypatch.setenv("http_proxy", found.url)
        ask = say("shell", command=script)
        ended = stage.call("run", "x", "--no-folder", "--model", stage.script(ask, DONE), "--net", "good.test")
        assert ended.err.count("hello\n") == 4, ended.err
        assert (
            sorted(found.asked) == ["CONNECT good.test:443 HTTP/1.1"] * 2 + ["GET http://good.test/page HTTP/1.1"] * 2
        )
    record = stage.call("runs", "show", "--json").out
    events = [json.loads(line) for line in record.splitlines()]
    assert [event["status"] for event in events if event["type"] == "network_requested"] == [200] * 4
    for text in (ended.out, ended.err, record):
        for secret in (PASSWORD, IN_URL, AUTHORIZATION.removeprefix("Basic ")):
            assert secret not in text


def test_an_upstream_proxy_that_is_down_is_a_line_and_one_that_is_none_is_a_mistake(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://{IN_URL}@127.0.0.1:1")
    ask = say("shell", command="curl -sS https://good.test/")
    ended = stage.call("run", "x", "--no-folder", "--model", stage.script(ask, DONE), "--net", "good.test")
    why = "the upstream proxy 127.0.0.1:1 (HTTPS_PROXY) cannot be reached: Connection refused"
    assert "response 502" in ended.err
    assert f"[network: CONNECT good.test:443: {why}, 0 bytes up, 0 down]" in ended.err
    monkeypatch.setenv("HTTPS_PROXY", f"socks4://{IN_URL}@127.0.0.1:1")
    ended = stage.call("sandbox", "exec", "--net", "good.test", "--", "true")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("stockade: HTTPS_PROXY is not the http:// or socks5:// address of a proxy\n")
    assert IN_URL not in ended.err


def test_authorities_of_ones_own_are_trusted_inside_and_towards_the_host_of_a_credential(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "https://good.test/page"
    python = f"import urllib.request as u; print(u.urlopen('{url}').read().decode(), end='')"
    script = f'curl -sS {url}; python3 -c "{python}"'
    with company(stage) as found:
        monkeypatch.setenv("HTTPS_PROXY", found.url)
        monkeypatch.setenv("MY_KEY", "sk-0123456789")
        ca = f"ca={stage.tmp_path / 'ca.pem'}"
        for flag in (("--net", "good.test"), ("--credential", "MY_KEY@good.test")):
            words = ("run", "x", "--no-folder", *flag, "--model", stage.script(say("shell", command=script), DONE))
            ended = stage.call(*words)
            assert "hello\n" not in ended.err
            assert "certificate" in ended.err
            ended = stage.call(*words, "-o", ca)
            assert ended.err.count("hello\n") == 2, ended.err
        assert "GET good.test:443: 200, with MY_KEY" not in ended.err  # no program sent the sentinel
        assert ended.err.count("GET good.test:443: 200") == 2
    ended = stage.call("run", "x", "--model", stage.script(DONE), "-o", f"{ca}.none")
    assert (ended.status, ended.err.splitlines()[0]) == (2, f"stockade: -o {ca}.none: No such file or directory")


ASKING = "words for the bot: "
TWICE = "curl -sS http://good.test/page; unset http_proxy; curl -sS http://good.test/page"


def asked(stage: Stage, answers: list[str], *commands: str, status: int = 0) -> str:
    """What the user sees who gives these answers, each at a question."""
    told = [say("shell", command=command) for command in commands]
    words = ("run", "x", "--folder", str(stage.demo), "--model", stage.script(*told, DONE), "--net", "other.test")
    argv = [sys.executable, "-m", "stockade.cli", *words, "--plain", "--discard"]
    return at_terminal(stage.home, argv, [(ASKING, answer) for answer in answers], status)


def network_events(stage: Stage) -> list[tuple[str, str, str]]:
    events = [json.loads(line) for line in stage.call("runs", "show", "--json").out.splitlines()]
    return [(one["method"], one["host"], one["verdict"]) for one in events if one["type"] == "network_requested"]


def test_a_refused_name_is_asked_about_in_place(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with company(stage) as found:
        monkeypatch.setenv("HTTPS_PROXY", found.url)
        monkeypatch.setenv("HTTP_PROXY", found.url)
        seen = asked(stage, ["y -x", "y"], TWICE)
        assert "The sandbox asks for good.test, which --net does not name." in " ".join(seen.split())
        assert "this authorises nothing" in seen
        assert seen.count("hello") == 2
        assert network_events(stage) == [("ASK", "good.test", "allowed"), *[("GET", "good.test", "allowed")] * 2]

        seen = asked(stage, ["n"], f"{TWICE}; echo the run goes on")
        assert "hello" not in seen
        assert "the run goes on" in seen
        assert network_events(stage)[0] == ("ASK", "good.test", "refused")

        assert asked(stage, ["r"], TWICE, TWICE).count("hello") == 4
        seen = asked(stage, ["use the other one"], TWICE)
        assert "good.test is not allowed: use the other one" in seen
        assert "hello" not in seen


def test_always_and_never_hold_for_that_bot_in_that_folder_and_without_a_terminal(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unattended(folder: Path) -> str:
        words = ("run", "x", "--folder", str(folder), "--model", stage.script(say("shell", command=TWICE), DONE))
        return stage.call(*words, "--net", "other.test").err

    with company(stage) as found:
        monkeypatch.setenv("HTTP_PROXY", found.url)
        assert "hello" not in unattended(stage.demo)
        assert asked(stage, ["always"], TWICE).count("hello") == 2
        assert "network good.test" in stage.call("approvals", "list").out
        assert unattended(stage.demo).count("hello") == 2
        assert asked(stage, [], TWICE).count("hello") == 2
        other = stage.tmp_path / "elsewhere"
        other.mkdir()
        assert "hello" not in unattended(other)
        stage.call("approvals", "rm", "--all")
        assert "hello" not in asked(stage, ["never"], TWICE)
        assert "hello" not in asked(stage, [], TWICE)
        assert "never network good.test" in stage.call("approvals", "list").out


def test_many_names_at_once_are_asked_about_one_by_one_and_each_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = " ".join(f"http://n{number}.test/" for number in range(4))
    many = f"for i in 1 2 3; do curl -sS --parallel --parallel-immediate {names} & done; wait; echo all of them ended"
    with company(stage) as found:
        monkeypatch.setenv("HTTP_PROXY", found.url)
        seen = asked(stage, ["n", "y", "exit"], many)
        assert "all of them ended" in seen
        hosts = {host for method, host, _ in network_events(stage) if method == "ASK"}
        assert len(hosts) == 3
        assert [method for method, _, _ in network_events(stage)].count("ASK") == 3
        assert {line.split("/")[2] for line in found.asked} < hosts


@pytest.mark.parametrize("url", ["http://169.254.169.254/", "http://localhost:1/", "http://10.0.0.1/"])
def test_addresses_and_services_of_this_machine_are_not_asked_about(stage: Stage, url: str) -> None:
    seen = asked(stage, [], f"curl -sS --noproxy none {url}")
    assert f"[network refused: GET {url.removeprefix('http://').split('/')[0]}" in seen
    assert "The sandbox asks" not in seen
