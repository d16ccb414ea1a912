"""A point in the hull by one choice among all grid points."""
