"""Integer programs with hidden equalities (KMMST24, Algorithm 5)."""
