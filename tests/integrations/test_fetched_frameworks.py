"""Frameworks that are fetched for these tests alone (`make test-clients`), on our adapters."""

import os
import sys
from pathlib import Path

import pytest

from tests.integrations.test_public_suites import ROOT, run_suite
from tests.support.toolchains import frameworks

pytestmark = pytest.mark.toolchain


def test_claude_agent_sdk(tmp_path: Path) -> None:
    """Its wheel has a whole Claude Code in it: 180 MB."""
    python = frameworks("claude_agent_sdk", ("claude-agent-sdk==0.2.189",))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    found = run_suite(python, "test_claude_agent_sdk_suite.py", tmp_path, PATH=path, PYTHONPATH=str(ROOT))
    assert found == {"passed": 2}
