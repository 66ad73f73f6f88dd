"""What the Coder bot knows about Python before it runs any: pure functions on text, by `ast`."""
