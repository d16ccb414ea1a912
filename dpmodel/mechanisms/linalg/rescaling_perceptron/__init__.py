"""The rescaling perceptron on a budget (KMMST24)."""
