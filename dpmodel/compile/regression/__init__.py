"""Recognising regressions on the user's tree: losses, features, penalties, and the set of the coefficients."""
