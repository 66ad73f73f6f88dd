"""Real clients in every sandbox that has a network: curl, git, pip, npm, Python; servers on loopback behind a name."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from stockade.core.ports import Sandbox
from stockade_sandbox.policy import CopyRule, Network, Policy
from stockade_sandbox.results import CommandOutput, NetworkRequest
from tests.support.backends import BACKENDS, ready, sandbox_of
from tests.support.site import certificates, content, site, to_loopback

pytestmark = pytest.mark.anyio


@dataclass
class Place:
    root: Path
    keys: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    made = Place(tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("keys"))
    certificates(made.keys)
    content(made.root)
    return made


Make = Callable[[Policy], Sandbox]


@pytest.fixture(params=BACKENDS)
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    ready(request.param, monkeypatch)
    return lambda policy: sandbox_of(request.param, policy, tmp_path / "run", to_loopback)


@dataclass
class Inside:
    box: Sandbox
    url: str
    events: list[NetworkRequest]

    async def run(self, command: str) -> CommandOutput:
        return await self.box.run(command.replace("URL", self.url), 60)


@asynccontextmanager
async def inside(place: Place, make: Make, *, tls: bool) -> AsyncIterator[Inside]:
    with site(place.root, place.keys / "site.pem" if tls else None) as port:
        ca = "/copied/ca.pem"
        names = ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "npm_config_cafile")
        policy = Policy(
            network=Network(mode="allow", hosts=(f"good.test:{port}",)),
            copies=(CopyRule(host=str(place.keys / "ca.pem"), inside=ca),),
            environment={**dict.fromkeys(names, ca), "npm_config_fetch_retries": "0"},
            streams="separate",
        )
        box = make(policy)
        found = Inside(box, f"http{'s' if tls else ''}://good.test:{port}", [])
        box.on_network = found.events.append
        async with box:
            yield found


PIP = "/usr/bin/python3 -m pip download --disable-pip-version-check"
COMMANDS = {
    "curl": ("curl -sSf --max-time 20 URL/page", b"hello\n"),
    "curl, a body": ("head -c 3000000 /dev/zero | curl -sSf --data-binary @- URL/x | wc -c", b"3000000\n"),
    "git": ("cd /tmp && git clone -q URL/repo.git got && cat got/file", b"cloned\n"),
    "pip": (
        f"cd /tmp && {PIP} --no-cache-dir --trusted-host good.test --index-url URL/simple/ tiny >&2 && echo *.whl",
        b"tiny-1.0-py3-none-any.whl\n",
    ),
    "npm": (
        "cd /tmp && npm view --registry=URL/npm --no-audit --no-update-notifier --prefer-online tiny version",
        b"1.0.0\n",
    ),
    "urllib": (
        '/usr/bin/python3 -c \'import urllib.request as u; print(u.urlopen("URL/page").read().decode(), end="")\'',
        b"hello\n",
    ),
}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_clients_get_what_is_on_the_list(place: Place, make: Make, *, tls: bool) -> None:
    async with inside(place, make, tls=tls) as found:
        for name, (command, expected) in COMMANDS.items():
            output = await found.run(command)
            assert (output.stdout, output.exit_code) == (expected, 0), (name, output)
    assert len(found.events) >= len(COMMANDS)
    for event in found.events:
        assert (event.verdict, event.host, event.method == "CONNECT") == ("allowed", "good.test", tls)
    assert max(event.bytes_up for event in found.events) > 3_000_000 < max(event.bytes_down for event in found.events)


REFUSED = {
    "curl, plain": ("curl -sS http://evil.test/", "stockade: evil.test is not on the --net allow list"),
    "curl, TLS": ("curl -sS https://evil.test/", "403"),
    "git": ("git clone -q https://evil.test/repo.git /tmp/x", "403"),
    "pip": (
        f"{PIP} --retries 1 --index-url https://evil.test/simple/ x",
        "stockade: evil.test is not on the --net allow list",
    ),
    "urllib": (
        "/usr/bin/python3 -c 'import urllib.request as u; u.urlopen(\"https://evil.test/\")'",
        "stockade: evil.test is not on the --net allow list",
    ),
}


async def test_clients_say_why_they_got_nothing(place: Place, make: Make) -> None:
    async with inside(place, make, tls=False) as found:
        for name, (command, words) in REFUSED.items():
            output = await found.run(command)
            assert words in output.output.decode(), (name, output)
            assert found.events[-1].verdict == "refused"


async def test_loopback_inside_needs_no_proxy(place: Place, make: Make) -> None:
    async with inside(place, make, tls=False) as found:
        # its first line comes when it listens
        serve = "coproc /usr/bin/python3 -u -m http.server 8000 --bind 127.0.0.1 2>/dev/null"
        await found.run(f'cd /tmp; echo own > own; {serve}; read -u "${{COPROC[0]}}"')
        output = await found.run("curl -sSf http://localhost:8000/own")
        assert output.stdout == b"own\n", output
        assert found.events == []


@pytest.mark.parametrize(
    ("command", "said"),
    [("cd /tmp && npm install --registry=https://registry.npmjs.org left-pad", b"EAI_AGAIN"),
     (f"{PIP} --no-cache-dir --index-url https://pypi.org/simple tiny", b"No matching distribution")],
)  # fmt: skip
async def test_without_a_network_they_say_so_and_do_not_try_again(make: Make, command: str, said: bytes) -> None:
    async with make(Policy()) as box:
        found = await box.run(f"{command} 2>&1", 60)  # npm tried for longer
        assert not found.timed_out
        assert said in found.stdout
        assert b"Retrying" not in found.stdout
