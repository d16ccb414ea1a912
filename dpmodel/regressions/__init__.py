"""Private empirical risk minimisation: the model, its populations, and one file per algorithm."""
