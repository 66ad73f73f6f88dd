"""What this machine can hold, found out by doing it: `stockade doctor`."""
