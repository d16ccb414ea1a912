"""Exact private linear algebra (KMMST24): spans, equations, inequalities, points in hulls."""
