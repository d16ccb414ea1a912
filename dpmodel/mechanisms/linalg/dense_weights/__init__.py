"""Dense multiplicative weights over a cone."""
