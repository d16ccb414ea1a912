"""Likelihoods of published numbers as CVXPY expressions, and the recognition of problems made of them."""

from __future__ import annotations

from dpmodel.compile.likelihood.recognise import recognise_postprocessing
from dpmodel.compile.likelihood.terms import Published, neg_log_likelihood, published

__all__ = ["Published", "neg_log_likelihood", "published", "recognise_postprocessing"]
