"""`stockade acp`: the Agent Client Protocol, by which an editor has a bot that works in the sandbox on its folder."""
