"""Primal multiplicative weights against a private dual oracle (HRRU14, Algorithms 4 to 6)."""
