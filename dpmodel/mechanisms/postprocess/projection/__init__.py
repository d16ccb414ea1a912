"""Likelihoods with a solution in closed form."""
