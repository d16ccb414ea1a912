"""CVXPY problem -> affine map from parameters to standard form -> footprint of one record's change."""
