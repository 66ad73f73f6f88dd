"""Best of n: a task done by several candidates at once, each a run of its own, of which one is taken over."""
