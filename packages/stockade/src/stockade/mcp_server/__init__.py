"""`stockade mcp`: Stockade's bots, sandboxes and records for any MCP client."""
