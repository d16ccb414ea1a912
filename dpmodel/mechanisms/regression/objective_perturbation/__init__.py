"""Objective perturbation: a random linear term, then an ordinary minimisation."""
