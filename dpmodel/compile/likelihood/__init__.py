"""Recognising post-processing: likelihoods of published numbers under public constraints."""
