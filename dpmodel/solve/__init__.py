"""Plan, charge, run: above all families, below the faces."""
