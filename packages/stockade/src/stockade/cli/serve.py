"""`stockade serve`: the HTTP API; `serve token`: who may use it."""

import ipaddress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import anyio
import click

from stockade.cli import flags
from stockade.cli.commands import NamedGroup
from stockade.cli.lazy import load
from stockade.cli.ui.failures import INTERRUPTED, say, unwrap_exception_group
from stockade.cli.ui.interrupt import Interrupt
from stockade.cli.ui.safe import hide, moment, one_line
from stockade.core.errors import UsageError, to_install

if TYPE_CHECKING:
    from stockade.server.tokens import Scope, Tokens

SCOPES: tuple["Scope", ...] = ("read", "run", "approve", "admin")
_NAME = click.Path(path_type=Path, dir_okay=False)


@click.group(
    "serve", cls=NamedGroup, invoke_without_command=True, short_help="An HTTP API: runs for programs and machines."
)
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Where; beyond loopback only with TLS.")
@click.option("--port", default=8711, type=click.IntRange(0, 65535), metavar="N", help="8711; 0 takes any.")
@click.option("--allow-model", multiple=True, metavar="NAME", help="A model that clients may name beside --model.")
@click.option("--resume-on-start", is_flag=True, help="Runs that a kill or a stop of the server cut off go on.")
@click.option("--tls-cert", type=_NAME, metavar="FILE", help="A certificate, PEM.")
@click.option("--tls-key", type=_NAME, metavar="FILE", help="Its key, PEM.")
@click.option("--tls-self-signed", is_flag=True, help="A certificate of our own; its fingerprint is printed.")
@click.option("--behind-proxy", metavar="NAME", help="TLS is done by a proxy that is reached by this name.")
@flags.offered((flags.flag("bot"),), flags.LIVING, flags.TOOLS, flags.SANDBOX, flags.STORE)
@click.pass_context
def command(context: click.Context, /, host: str, port: int, **values: Any) -> int:
    """Serve runs over HTTP, until Ctrl-C. Tokens say who may use it: stockade serve token new NAME.

    --folder PATH[:ro] says which folders a client may name (by default the current one, and what is below); model,
    network, time and limits are those of the flags: a client may ask for less. What a bot writes waits for an apply.
    """
    if context.invoked_subcommand is not None:
        return 0
    if find_spec("fastapi") is None or find_spec("uvicorn") is None or find_spec("sse_starlette") is None:
        raise UsageError("stockade serve needs packages that are not installed", to_install("serve"))
    own = {name: values.pop(name) for name in _OWN}
    secure = own["tls_cert"] is not None or own["tls_self_signed"]
    if not (_is_loopback(host) or secure or own["behind_proxy"]):
        what = f"{host} is beyond this machine, and what travels would be readable"
        raise UsageError(what, "--tls-cert FILE --tls-key FILE, --tls-self-signed, or --behind-proxy NAME")
    if (own["tls_cert"] is None) != (own["tls_key"] is None):
        raise UsageError("--tls-cert and --tls-key belong together", "give both")
    settings = flags.settings({**flags.given(values), "mcp": ("none",)} if not values.get("mcp") else values)
    interrupt = Interrupt()

    def announce(url: str, fingerprint: str | None, resumed: list[str]) -> None:
        if not (known := _tokens().all()):
            say(f"the first token, which is shown once: {_tokens().new('first', SCOPES, 16, None)}")
        for run_id in resumed:
            say(f"run {run_id} goes on")
        if fingerprint is not None:
            say(f"the certificate's SHA-256 is {fingerprint}")
        user = known[0].name if known else "first"
        say(f"open {url}/#login={_tokens().login_key(user)} (once, within an hour; as the token {user})")
        print(url, flush=True)

    async def work() -> None:
        start = load("server.start:start")
        await start(settings.options, host, port, own, announce, hide, interrupt.cancelling)

    try:
        anyio.run(work)
    except BaseExceptionGroup as group:
        raise unwrap_exception_group(group) from None
    return INTERRUPTED if interrupt.pressed else 0


_OWN = ("allow_model", "resume_on_start", "tls_cert", "tls_key", "tls_self_signed", "behind_proxy")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@command.group("token", cls=NamedGroup, short_help="Who may use the server: make, list and remove tokens.")
def token() -> None:
    """Tokens of `stockade serve`. Only a hash of each is kept."""


@token.command("new", short_help="Make a token, which is shown once.")
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, type=click.Choice(SCOPES), help="What it may do; else all but admin.")
@click.option("--runs", "at_once", default=4, type=click.IntRange(1, 10_000), metavar="N", help="Runs at once; 4.")
@click.option("--max-cost", type=flags.Number(0), metavar="USD", help="What all its runs may cost together.")
def new(name: str, scopes: tuple[Literal["read", "run", "approve", "admin"], ...], **bounds: Any) -> int:
    """Make a token called NAME. It is printed, and nobody can be told it again.

    \b
    read: see its runs · run: begin, steer and end them · approve: allow actions, apply changes · admin: all, of all
    """
    print(_tokens().new(name, scopes or ("read", "run", "approve"), bounds["at_once"], bounds["max_cost"]))
    return 0


@token.command("login", short_help="A link that logs a browser in, once.")
@click.argument("name")
@click.option("--url", default="http://127.0.0.1:8711", metavar="URL", help="Where the server is.")
def login(name: str, url: str) -> int:
    """Print a link that logs a browser in as the token NAME, once, within an hour."""
    print(f"{url.rstrip('/')}/#login={_tokens().login_key(name)}")
    return 0


@token.command("list", short_help="List tokens, by name.")
def list_tokens() -> int:
    """Name, scopes, bounds and age of each; the tokens themselves are nowhere."""
    for one in _tokens().all():
        bound = "" if one.max_cost is None else f" · {one.max_cost:g} USD"
        print(f"{one_line(one.name)}  {','.join(one.scopes)} · {one.at_once} runs{bound} · {moment(one.made)}")
    return 0


@token.command("rm", short_help="Remove a token: it is refused from now on.")
@click.argument("name")
def rm(name: str) -> int:
    """Remove the token NAME. Its runs stay, and only an admin sees them."""
    _tokens().remove(name)
    return 0


def _tokens() -> "Tokens":
    found: Tokens = load("server.tokens:Tokens")()
    return found
