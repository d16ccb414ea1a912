"""Dense multiplicative weights over private rows (HRRU14, Algorithm 2)."""
