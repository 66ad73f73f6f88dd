"""WebAssembly components as tools: compiled, looked at and called inside a sandbox only, never in this process."""
