"""Evaluation sets: what is read from packages that others publish, and nothing of it kept here."""
