"""Algorithms with their papers' own constants, corrected where they do not hold: yardsticks."""
