"""Solvers of post-processing problems: they read published numbers only."""
