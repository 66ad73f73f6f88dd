"""MCP servers as tools: started inside the sandbox, or reached through its network; nothing they say is trusted."""
