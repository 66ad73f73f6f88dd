"""The default: bubblewrap, which needs neither a daemon nor root."""
