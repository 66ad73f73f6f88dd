collect_ignore = ["suites"]
"""They are run by test_public_suites.py, where their frameworks are."""
