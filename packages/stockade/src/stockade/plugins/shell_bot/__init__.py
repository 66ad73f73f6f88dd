"""The Shell bot: it lives in a folder and rules itself by files in it (docs/shell.md)."""
