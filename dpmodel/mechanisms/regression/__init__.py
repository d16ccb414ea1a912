"""Private empirical risk minimisation: one file per algorithm."""
