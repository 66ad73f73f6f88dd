"""The sandbox is a distribution of its own, for whoever has no use for the agent: what importing all of it loads."""

import json
import subprocess
import sys

IMPORT_ALL = """
import importlib, json, pkgutil, sys
import stockade_sandbox as package
server = package.__name__ + ".server."
others = package.__name__ + ".integrations.", server + "alone", server + "listening"  # a framework's, uvicorn's
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not module.name.startswith(others):
        importlib.import_module(module.name)
print(json.dumps(sorted(sys.modules)))
"""


def test_all_of_it_loads_nothing_of_stockade_and_no_pydantic() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, check=True)
    names = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert "stockade_sandbox" in names
    assert not names & {"stockade", "pydantic", "pydantic_core", "click", "rich"}
