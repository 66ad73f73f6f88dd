"""Fakes that are part of the product: a scripted model, a sandbox and a record in memory, a clock that stands still."""

from stockade.testing.fakes import FixedClock, MemorySandbox, MemoryStore, ScriptedModel, StepAnswers, say, steps

__all__ = ["FixedClock", "MemorySandbox", "MemoryStore", "ScriptedModel", "StepAnswers", "say", "steps"]
