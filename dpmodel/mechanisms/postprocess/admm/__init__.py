"""ADMM for likelihoods (LWK15)."""
