"""Exact maximum likelihood on trees under Laplace noise."""
