"""Other agents, and any program, in the sandbox: `stockade wrap`, and bots that are such a program (docs/wrap.md)."""
