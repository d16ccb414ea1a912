"""Cutting planes for private right-hand sides."""
