"""Command tools: programs that are installed for a bot, and host programs that it may be given. docs/tools.md."""
