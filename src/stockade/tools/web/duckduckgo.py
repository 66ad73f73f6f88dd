"""DuckDuckGo by `ddgs`, which runs in a sealed place whose only way out is that one host, through the egress proxy."""

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from stockade.core.errors import ActionFailed, SandboxDied, UsageError, to_install
from stockade.core.policy import Network
from stockade.core.ports import OnNetwork
from stockade.core.search import Found
from stockade.tools.reading.reader import Room, one_line

HOST = "html.duckduckgo.com"
SEARCH_S = 20.0
_PROGRAM = """
import json, sys
options = json.loads(sys.argv[1])
sys.path.extend(sys.argv[2:])
from ddgs import DDGS
from ddgs.exceptions import DDGSException
try:
    if trusted := options["certificates"]:
        with open("/tmp/ca.pem", "w") as file:
            file.write(trusted)
    searching = DDGS(proxy="http://127.0.0.1:3128", timeout=15, verify="/tmp/ca.pem" if trusted else True)
    found = searching.text(options["query"], max_results=options["count"], backend="duckduckgo")
except DDGSException as error:
    found = {"error": str(error)}
json.dump(found, sys.stdout)
"""


@dataclass(frozen=True)
class DuckDuckGo:
    """Implements core.search.SearchEngine. `certificates` is for tests, which are their own authority."""

    room: Room
    on_network: OnNetwork | None = None
    certificates: str = ""
    name: str = "DuckDuckGo"

    @classmethod
    def installed(cls, room: Room, on_network: OnNetwork | None = None) -> "DuckDuckGo":
        """UsageError when ddgs, or a place for it, is not there. May block for a moment."""
        if importlib.util.find_spec("ddgs") is None:
            raise UsageError("--search duckduckgo needs ddgs", to_install("web"))
        room.check()
        return cls(room, on_network)

    async def search(self, query: str, count: int) -> Sequence[Found]:
        options = json.dumps({"query": query, "count": count, "certificates": self.certificates})
        argv = [self.room.python, "-I", "-B", "-c", _PROGRAM, options, *self.room.packages]
        async with self.room.open(Network(mode="allow", hosts=(f"{HOST}:443",)), self.on_network) as place:
            try:
                done = await place.exec(argv, b"", SEARCH_S, 1 << 20)
            except SandboxDied as error:
                raise ActionFailed(f"{self.name} cannot be asked: {error.message}") from None
        if done.timed_out:
            raise ActionFailed(f"{self.name} did not answer within {SEARCH_S:g} s")
        if done.exit_code:
            lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.exit_code}"]
            raise ActionFailed(f"{self.name} cannot be asked: {one_line(lines[-1], 200)}")
        try:
            said = json.loads(done.stdout)
            if isinstance(said, dict):
                if "No results" in said["error"]:
                    return []
                raise ActionFailed(f"{self.name} cannot be asked: {one_line(said['error'], 200)}")
            return [Found(title=one["title"], url=one["href"], snippet=one["body"]) for one in said][:count]
        except (ValidationError, ValueError, KeyError, TypeError):
            raise ActionFailed(f"{self.name} gave nothing that can be used") from None
