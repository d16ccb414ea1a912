"""The span of nearly all of many private vectors (KMMST24, Algorithms 1 and 2)."""
