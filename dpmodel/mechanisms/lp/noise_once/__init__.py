"""Noise once on the private entries, then an ordinary solve."""
