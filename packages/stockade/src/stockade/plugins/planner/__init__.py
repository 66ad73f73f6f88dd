"""The Planner: a bot that is made for its task, thinks aloud and acts when it is authorised (docs/planner.md)."""
