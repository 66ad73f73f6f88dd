"""What the commands show and ask: consoles, drawing, questions, and how a failure is told."""
