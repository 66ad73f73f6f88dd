"""What runs inside the sandbox: one process a call, with the standard library and wasmtime, nothing else of ours."""
