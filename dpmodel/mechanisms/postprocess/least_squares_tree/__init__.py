"""Exact least squares on trees, which is maximum likelihood under Gaussian noise."""
