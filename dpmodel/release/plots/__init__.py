"""Figures, one file each: they draw the numbers that they are handed, and know nobody else of the package."""
