"""Small programs that run as they stand; a test runs each."""
