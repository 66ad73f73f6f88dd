"""LangChain's own suite for sandboxes of deepagents."""

from collections.abc import Iterator

import pytest
from langchain_tests.integration_tests import SandboxIntegrationTests

from stockade_sandbox import Sandbox
from stockade_sandbox.integrations.deepagents import StockadeBackend

WHY = "deepagents 0.7 says otherwise: its glob gives absolute paths, and its write replaces"
KNOWN = (
    "test_glob", "test_glob_basic_pattern", "test_glob_hidden_files_explicitly", "test_glob_with_character_class",
    "test_glob_with_directories", "test_glob_with_question_mark", "test_write_existing_file_fails",
)  # fmt: skip


class TestStockade(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[StockadeBackend]:
        with Sandbox() as box:
            yield StockadeBackend(box)

    @pytest.fixture(autouse=True)
    def _known(self, request: pytest.FixtureRequest) -> None:
        if request.node.originalname in KNOWN:
            request.applymarker(pytest.mark.xfail(reason=WHY, strict=True))
