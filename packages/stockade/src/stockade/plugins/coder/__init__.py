"""The Coder bot: Python that is written by a model, run in the sandbox and mended until its checks pass."""
