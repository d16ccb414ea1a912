"""A nearly feasible point chosen by the exponential mechanism."""
