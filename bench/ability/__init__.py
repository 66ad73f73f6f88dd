"""What a small model can do with each loop: shell tasks with objective checks, on one local server."""
