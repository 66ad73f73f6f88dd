"""Limits of a whole sandbox: memory and processes by control groups, what it writes by watching."""
