"""dpmodel."""
