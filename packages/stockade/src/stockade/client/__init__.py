"""Runs on a `stockade serve`, from Python: events, results and errors are those of a run here (docs/client.md)."""
