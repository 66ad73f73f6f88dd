"""Package managers, git and other clients in a sandbox, towards one named host with a certificate of the test's own
authority: each by the proxy that the variables name, and without them. Refused ones fail by themselves.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from stockade.core.ports import Sandbox
from stockade_sandbox.policy import GIB, CopyRule, Limits, Network, Policy
from stockade_sandbox.results import CommandOutput, NetworkRequest
from tests.support.backends import sandbox_of
from tests.support.indexes import MODULE, index_server, indexes
from tests.support.site import certificates, to_loopback
from tests.support.toolchains import package_managers

pytestmark = pytest.mark.anyio
MORE = pytest.mark.toolchain
"""What .ci/run does not install: apt-get install cargo-web golang-go default-jdk-headless; uv and pnpm are fetched."""
FROM = "from the index\n"

CARGO = """
mkdir -p app/src app/.cargo && cd app
printf '[package]\\nname="app"\\nversion="0.1.0"\\nedition="2021"\\n[dependencies]\\ntiny="1"\\n' >Cargo.toml
cat >.cargo/config.toml <<'END'
[source.crates-io]
replace-with = "ours"
[source.ours]
registry = "sparse+URL/cargo/index/"
END
echo 'fn main() { println!("{}", tiny::FROM); }' >src/main.rs
CARGO_HOME=$PWD/home cargo run -q"""
GO = f"""
mkdir app && cd app && printf 'module app\\ngo 1.19\\nrequire {MODULE} v1.0.0\\n' >go.mod
printf 'package main\\nimport ("fmt"; "{MODULE}")\\nfunc main() {{ fmt.Println(tiny.From) }}\\n' >main.go
export GOFLAGS="-mod=mod -modcacherw" GOPROXY=URL/go GOSUMDB=off GOCACHE=$PWD/cache GOPATH=$PWD/path
go run ."""
JAVA = """
cat >Get.java <<'END'
import java.net.URI;
import java.net.http.*;
public class Get {
    public static void main(String[] words) throws Exception {
        var asked = HttpRequest.newBuilder(URI.create(words[0])).build();
        System.out.print(HttpClient.newHttpClient().send(asked, HttpResponse.BodyHandlers.ofString()).body());
    }
}
END
csplit -s -z -f cert /credentials/ca.pem '/BEGIN CERT/' '{*}' && last=$(ls cert* | sort -V | tail -1)
keytool -importcert -noprompt -storepass changeit -keystore trust -file $last
java -Djavax.net.ssl.trustStore=trust -Djavax.net.ssl.trustStorePassword=changeit Get.java URL/page"""
GIT = """
identity="-c user.name=a -c user.email=a@a" && git clone -q URL/repo.git got && cd got && cat file
head -c 3000000 /dev/urandom >big && git add big && git $identity commit -q -m big && git push -q origin HEAD:WAY
git ls-remote -q origin WAY | grep -c WAY"""
PIP = "python3 -m pip install -q --disable-pip-version-check --no-cache-dir --retries 1 --target t --index-url"
NPM = "npm install --no-audit --no-fund --no-update-notifier --silent --fetch-retries=0 --registry=URL/npm tiny"
NODE = "node -p 'require(\"tiny\")'"
CLIENTS = {
    "pip": (f"{PIP} URL/simple/ tiny && ls t/tiny.py", "t/tiny.py\n"),
    "npm": (f"{NPM} && {NODE}", FROM),
    "git": (GIT, "cloned\n1\n"),
    "uv": ("uv pip install -q --no-cache --python /usr/bin/python3 --target t --index-url URL/simple/ tiny && "
           "ls t/tiny.py", "t/tiny.py\n"),
    "pnpm": (f"pnpm add -s --fetch-retries=0 --registry=URL/npm tiny && {NODE}", FROM),
    "cargo": (CARGO, FROM),
    "go": (GO, FROM),
    "java": (JAVA, "hello\n"),
}  # fmt: skip
IN_CI = ("pip", "npm", "git")
WAYS = {"the proxy": "", "no proxy": "unset http_proxy https_proxy HTTPS_PROXY\n"}
each = pytest.mark.parametrize("name", [pytest.param(one, marks=() if one in IN_CI else MORE) for one in CLIENTS])
by_each_way = pytest.mark.parametrize("way", WAYS)


@dataclass
class Inside:
    box: Sandbox
    events: list[NetworkRequest]

    async def run(self, name: str, way: str, url: str) -> CommandOutput:
        command = CLIENTS[name][0].replace("URL", url).replace("WAY", way.replace(" ", "-"))
        return await self.box.run(f"cd $(mktemp -d)\n{WAYS[way]}{command}", 300)


@asynccontextmanager
async def inside(tmp_path: Path, name: str) -> AsyncIterator[tuple[Inside, str]]:
    """And where the indexes are."""
    root, keys = tmp_path / "root", tmp_path / "keys"
    root.mkdir()
    keys.mkdir()
    certificates(keys)
    copies: tuple[CopyRule, ...] = ()
    environment: dict[str, str] = {}
    if name in ("uv", "pnpm"):
        copies = (CopyRule(host=str(package_managers()), inside="/managers"),)
        environment = {"PATH": "/managers:/usr/bin:/bin"}
    with index_server(root, keys / "site.pem") as port:
        indexes(root, url := f"https://good.test:{port}")
        policy = Policy(
            network=Network(mode="allow", hosts=(f"good.test:{port}",)),
            authorities=((keys / "ca.pem").read_text(),),
            copies=copies,
            environment=environment,
            limits=Limits(memory_bytes=2 * GIB, disk_bytes=GIB),
            streams="separate",
        )
        found = Inside(sandbox_of("bubblewrap", policy, tmp_path / "run", to_loopback), [])
        found.box.on_network = found.events.append
        async with found.box:
            yield found, url


@by_each_way
@each
async def test_an_allowed_host_works(tmp_path: Path, name: str, way: str) -> None:
    async with inside(tmp_path, name) as (found, url):
        output = await found.run(name, way, url)
        assert (output.stdout.decode(), output.exit_code) == (CLIENTS[name][1], 0), output
    assert {(event.host, event.verdict) for event in found.events} == {("good.test", "allowed")}
    knows_proxies = way == "the proxy" and name != "java"
    assert {event.method for event in found.events} == {"CONNECT" if knows_proxies else "TCP"}


@by_each_way
@each
async def test_a_refused_one_fails_by_itself_and_is_on_record(tmp_path: Path, name: str, way: str) -> None:
    async with inside(tmp_path, name) as (found, _):
        output = await found.run(name, way, "https://evil.test")
        assert output.exit_code not in (0, 124), output
    assert {(event.host, event.verdict) for event in found.events} == {("evil.test", "refused")}
    assert {event.reason for event in found.events} == {"evil.test is not on the --net allow list"}
