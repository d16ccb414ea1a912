"""Exact systems (KMMST24): fields, the models of vectors, inequalities and points, and a file an algorithm."""
