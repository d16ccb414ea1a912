"""Engines find nearly feasible points; this package treats the objective and makes mechanisms of them."""
