"""`stockade sandbox serve` and `health`: sandboxes of this machine for another one."""

from importlib.util import find_spec
from pathlib import Path

import anyio
import click

from stockade.cli.lazy import load
from stockade.cli.ui.failures import INTERRUPTED, say
from stockade.cli.ui.interrupt import interruptible
from stockade.cli.ui.safe import one_line
from stockade.core.errors import UsageError, to_install
from stockade_sandbox.backends.remote import endpoint
from stockade_sandbox.backends.remote.allowed import Allowed
from stockade_sandbox.backends.remote.endpoint import Address
from stockade_sandbox.policy import is_loopback, parse_network
from stockade_sandbox.registry import load as load_sandbox

KEEP_S = 120.0
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("serve", short_help="Serve sandboxes to other machines.")
@click.option("--listen", default="127.0.0.1:8711", metavar="HOST:PORT", help="Where; port 0 takes any.")
@click.option(
    "--token-file", required=True, type=_FILE, help="What both sides share, a token a line; made when absent."
)
@click.option("--allow", multiple=True, metavar="PATH[:MODE]", help="A folder that may be used; MODE is ro or rw.")
@click.option("--net", default="none", metavar="none|open|HOST,...", help="The most network that may be asked for.")
@click.option("--allow-images", is_flag=True, help="Whether another root file system may be asked for.")
@click.option("--sandbox", default="auto", metavar="auto|bubblewrap|docker|podman|gvisor", help="Sandbox backend.")
@click.option("--keep", default=KEEP_S, metavar="S", help="How long a sandbox waits for a client that was cut off.")
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="A certificate, PEM.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Its key, PEM.")
@click.option("--tls-self-signed", is_flag=True, help="A certificate of our own; where it is, is printed.")
def serve(
    listen: str, token_file: Path, allow: tuple[str, ...], net: str, allow_images: bool, sandbox: str, keep: float,
    tls_cert: Path | None, tls_key: Path | None, tls_self_signed: bool,
) -> int:  # fmt: skip
    """Serve sandboxes of this machine to whoever has the token: there, --sandbox https://HOST:PORT.

    Folders are those of this machine, and only those that are allowed here. Beyond loopback it wants TLS.
    """
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise UsageError("stockade sandbox serve needs packages that are not installed", to_install("serve"))
    roots = tuple(endpoint.allowed_root(text) for text in allow)
    try:
        network = parse_network(net)
    except ValueError as error:
        raise UsageError(f"--net: {error}") from None
    where = Address.of(listen)
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key belong together", "give both")
    if not (is_loopback(where.host) or tls_cert or tls_self_signed):
        what = f"{where.host} is beyond this machine, and what travels would be readable"
        raise UsageError(what, "--tls-cert FILE --tls-key FILE, or --tls-self-signed")
    certificate = _certificate(where.host, tls_cert, tls_key, self_signed=tls_self_signed)
    at = load_sandbox("server.listening:listen")(where.host, where.port)
    if endpoint.ensure_token(token_file):
        say(f"made a token: copy {token_file} to the other machine")
    sessions = load_sandbox("server.sessions:Sessions")(
        Allowed(roots=roots, network=network, images=allow_images), load("server.sandboxes:opener")(sandbox), keep
    )
    owners = load_sandbox("server.app:owners")(endpoint.read_tokens(token_file))
    app = load_sandbox("server.app:App")(sessions, owners)
    shown = Address(host=where.host, port=at.getsockname()[1])

    async def work() -> int:
        await load_sandbox("server.alone:serve")(
            app, sessions, at, certificate, lambda: print(f"{'https' if certificate else 'http'}://{shown}", flush=True)
        )
        return 0

    status = interruptible(work)
    return INTERRUPTED if status is None else status


def _certificate(host: str, cert: Path | None, key: Path | None, *, self_signed: bool) -> tuple[Path, Path] | None:
    if cert is not None and key is not None:
        found = load("server.certificate:given")(cert, key)
    elif self_signed:
        found = load("server.certificate:self_signed")(host)
        say(f"the certificate is {found.cert}: there, SSL_CERT_FILE names a copy of it", found.fingerprint)
    else:
        return None
    return found.cert, found.key


@click.command("health", short_help="Check whether another machine serves sandboxes.")
@click.argument("url", metavar="https://HOST:PORT")
def health(url: str) -> int:
    """Whether sandboxes are served there. Status 0 when they are, 4 when not; no token is needed."""
    anyio.run(endpoint.health, url)
    print(f"{one_line(url)} serves sandboxes")
    return 0
