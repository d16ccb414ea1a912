"""The best points that read no private data."""
