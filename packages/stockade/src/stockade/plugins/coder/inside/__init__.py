"""What is mounted into the sandbox, read-only: one program, which imports the standard library only."""
