"""Exact private linear algebra: vectors, inequalities and points, one record each."""
