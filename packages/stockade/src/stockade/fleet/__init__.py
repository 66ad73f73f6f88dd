"""Many runs: the tasks of a file, so many at once, each attempt a line of the results."""
