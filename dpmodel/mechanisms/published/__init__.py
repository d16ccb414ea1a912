"""Algorithms with the constants of their papers, as yardsticks: asked for by name, not planned otherwise."""
