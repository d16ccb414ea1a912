"""CVXPY problem -> affine map of the parameters -> footprint of one record. The bridge alone knows CVXPY inside."""
