"""Noisy mirror descent over l1 balls and simplices."""
