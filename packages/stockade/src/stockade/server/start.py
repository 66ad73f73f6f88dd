"""`stockade serve` from its settings to its end: record, runs, certificate, socket, and what goes on from before."""

import resource
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import anyio

from stockade.core.secrets import Redactor
from stockade.runtime import records
from stockade.runtime.bots import find_bot, with_defaults
from stockade.runtime.roots import Roots
from stockade.runtime.spec import RunSpec
from stockade.server.api import Served
from stockade.server.app import make_app
from stockade.server.batching import Batches
from stockade.server.certificate import Certificate, given, self_signed
from stockade.server.runs import Runs
from stockade.server.sandboxes import Sandboxes
from stockade.server.tokens import Tokens
from stockade.server.uploads import Uploads
from stockade_sandbox.server.listening import listen, make_server

_FILES = 16_384
Announce = Callable[[str, str | None, list[str]], None]
"""The address, the fingerprint of a certificate of ours, and the runs that go on."""


async def start(
    options: RunSpec,
    host: str,
    port: int,
    own: Mapping[str, Any],
    announce: Announce,
    hide: Callable[[Redactor], None],
    until: Callable[[Callable[[], None]], AbstractContextManager[None]],
) -> None:
    """Serves inside `until`, which calls what it is given when that shall end. `own`: the command's own flags."""
    if (model := with_defaults(options, find_bot(options.bot)).model) != options.model:  # that of whatever bot is asked
        options = options.model_copy(update={"model": model})
    store = records.open_store(options.store)
    tokens = Tokens()
    runs = Runs(options, Roots.of(options.folder), store, tokens, own["allow_model"])
    hide(runs.redactor)
    certificate: Certificate | None = None
    if own["tls_cert"] is not None:
        certificate = given(own["tls_cert"], own["tls_key"])
    elif own["tls_self_signed"]:
        certificate = self_signed(host)
    names = {host.lower(), *(certificate.names if certificate else ())}
    if own["behind_proxy"]:
        names.add(own["behind_proxy"].lower())
    sandboxes = Sandboxes(options, runs)
    batches = Batches(options, runs.roots, store)
    app = make_app(Served(runs, tokens, Uploads(store), batches=batches), frozenset(names), sandboxes)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # a connection is an open file, and so is much of a run
    resource.setrlimit(resource.RLIMIT_NOFILE, (most if 0 <= most < _FILES else _FILES, most))
    at = listen(host, port)
    server = make_server(app, (certificate.cert, certificate.key) if certificate else None, last_s=3)
    try:
        with until(lambda: setattr(server, "should_exit", True)):
            again = own["resume_on_start"]
            async with runs.serving(), batches.serving(resume=again), anyio.create_task_group() as group:
                await group.start(sandboxes.sessions.run)
                resumed = await runs.resume_all() if again else []
                shown = f"[{host}]" if ":" in host else host
                scheme = "https" if certificate else "http"
                announce(
                    f"{scheme}://{shown}:{at.getsockname()[1]}",
                    certificate.fingerprint if certificate else None,
                    resumed,
                )
                await server.serve(sockets=[at])
                runs.closing = True
                group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()
