"""Exact arithmetic: rational numbers, finite fields, and subspaces over them."""
