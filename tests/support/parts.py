"""Parts by name, for tests that go through all of them."""

from stockade.runtime import registry
from stockade.runtime.bots import find_bot
from stockade.runtime.models import pick_protocol as make_protocol

PROTOCOLS = registry.names("stockade.answers")
BUILT_IN = {name: find_bot(name) for name in registry.names("stockade.bots")}

__all__ = ["BUILT_IN", "PROTOCOLS", "make_protocol"]
