"""Answer protocols: each against the suite."""

import pytest

from stockade.answers.json_schema import JsonAnswers
from stockade.core.ports import AnswerProtocol
from stockade.testing.conformance.answers import AnswerConformance


class TestJson(AnswerConformance):
    @pytest.fixture
    def protocol(self) -> AnswerProtocol:
        return JsonAnswers()
