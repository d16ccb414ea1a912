"""Algorithms with their papers' own constants, as yardsticks: each is the tightened one with other numbers."""
