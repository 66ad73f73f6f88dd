"""A database at a private address, in a network of its own beside this machine: psql, which knows of no proxy, reaches
it by a name that is on the list.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.postgres import Server

ADDRESS = "10.20.0.7"
FORWARD = """
import asyncio, sys
async def copy(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def carry(reader, writer):
    there = await asyncio.open_unix_connection(sys.argv[1])
    await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))
async def serve():
    server = await asyncio.start_server(carry, "10.20.0.7", 5432)
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(serve())
"""
BESIDE = """
set -e
mount --bind "$HOSTS" /etc/hosts
ip link set lo up && ip link add here type veth peer name there
there='echo born; read go; ip link set there up; ip addr add 10.20.0.7/24 dev there; exec python3 -c "$@"'
coproc unshare --net sh -c "$there" sh "$FORWARD" "$SOCKET"
trap 'kill "$COPROC_PID"; wait' EXIT
read -ru "${COPROC[0]}" _ && ip link set there netns "$COPROC_PID"
ip addr add 10.20.0.1/24 dev here && ip link set here up
echo >&"${COPROC[1]}" && read -ru "${COPROC[0]}" _
"$@"
"""
SELECT = "psql -h {} -p {} -U postgres -Atc 'SELECT 6 * 7' postgres"


def psql(server: Server, tmp_path: Path, net: str, host: str, port: int = 5432) -> "subprocess.CompletedProcess[str]":
    """In a sandbox of a machine that reaches ADDRESS, and for which both names are there."""
    (tmp_path / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESS} db.corp db.example.org\n")
    told = {"HOSTS": tmp_path / "hosts", "FORWARD": FORWARD, "SOCKET": server.sockets / ".s.PGSQL.5432"}
    stockade = [sys.executable, "-m", "stockade.cli", "sandbox", "exec", "--net", net, "--", "sh", "-c"]
    argv = ["unshare", "--net", "--mount", "bash", "-c", BESIDE, "bash", *stockade, SELECT.format(host, port)]
    environment = os.environ | {name: str(value) for name, value in told.items()}
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120, env=environment)


@pytest.mark.parametrize(
    ("net", "host"),
    [("db.corp:5432", "db.corp"), ("db.example.org:5432,10.20.0.0/16:5432", "db.example.org")],
)
def test_psql_reaches_a_private_address_that_is_named(postgres: Server, tmp_path: Path, net: str, host: str) -> None:
    found = psql(postgres, tmp_path, net, host)
    assert (found.stdout, found.stderr, found.returncode) == ("42\n", "", 0)


@pytest.mark.parametrize(
    ("net", "host", "port", "said", "why"),
    [
        ("db.corp:5432", "db.example.org", 5432, "could not translate host name",
         "refused: db.example.org (1) allow with --net db.example.org"),
        ("db.example.org:5432", "db.example.org", 5432, "server closed the connection",
         "network: db.example.org:5432: db.example.org has the address 10.20.0.7, which is not public: "
         "--net has to name 10.20.0.7:5432 too"),
        ("db.corp:5433", "db.corp", 5433, "server closed the connection",
         "network: db.corp:5433: cannot connect to db.corp:5433: Connection refused"),
    ],
    ids=["a name that is not named", "an address that is not named", "where nobody listens"],
)  # fmt: skip
def test_what_it_does_not_reach_ends_at_once_with_a_reason(
    postgres: Server, tmp_path: Path, net: str, host: str, port: int, said: str, why: str
) -> None:
    found = psql(postgres, tmp_path, net, host, port)
    assert (found.stdout, found.returncode) == ("", 2)
    assert said in found.stderr
    assert found.stderr.splitlines()[-1] == f"stockade: {why}"
