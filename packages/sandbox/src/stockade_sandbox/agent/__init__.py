"""The agent: pid 1 inside every sandbox. README.md has the protocol; the C sources are beside this file."""
