"""A point in the hull by the ellipsoid method (KMMST24, Algorithm 7)."""
