"""An editor served on two descriptors, until it leaves; then every run is closed in order."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import anyio
from acp.agent.connection import AgentSideConnection

from stockade.acp.agent import StockadeAgent
from stockade.acp.wire import Wire
from stockade.core.ports import RunStore
from stockade.models.local import folder
from stockade.models.servers import ask_servers

_PATIENCE_S = 2.0


async def serve(
    given: Mapping[str, Any],
    store: RunStore,
    source: int,
    sink: int,
    stopping: Callable[[Callable[[], None]], AbstractContextManager[None]],
) -> None:
    """`given`: the flags of the command line; `stopping` calls back when somebody wants this process to end."""
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope, stopping(scope.cancel):
            wire = Wire(source, sink, scope.cancel)
            group.start_soon(wire.write)
            agent = StockadeAgent(given, store, group, models_here, os.environ)
            connection = AgentSideConnection(agent, wire, listening=False, use_unstable_protocol=True)
            try:
                await connection.listen()
            finally:
                with anyio.CancelScope(shield=True):
                    await agent.close()
                    await connection.close()
        group.cancel_scope.cancel()


async def models_here() -> Sequence[tuple[str, str]]:
    """Those on this machine, and those of servers that answer soon."""
    local = await anyio.to_thread.run_sync(folder.list_models)
    found = [(one.name, one.about) for one in local if one.here and not one.problem]
    with anyio.move_on_after(_PATIENCE_S):
        found += [(model.spec, "") for server in await ask_servers() for model in server.models if model.talks]
    return found
