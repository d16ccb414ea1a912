"""Least squares from second moments that are measured once."""
