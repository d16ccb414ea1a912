"""Noisy descent on the mean hinge of private rows."""
