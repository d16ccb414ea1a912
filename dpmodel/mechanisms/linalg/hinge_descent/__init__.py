"""Noisy descent on the hinge of private inequalities over a cone."""
