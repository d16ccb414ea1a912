"""A vertex chosen by the exponential mechanism."""
