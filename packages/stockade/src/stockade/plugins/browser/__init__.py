"""A web browser inside the sandbox. Chromium is spoken to over two pipes of its own; nothing of it is on the host."""
