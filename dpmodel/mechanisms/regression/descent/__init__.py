"""Noisy gradient descent: on all records, and on samples of them."""
