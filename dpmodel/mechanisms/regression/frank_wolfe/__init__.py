"""Private Frank-Wolfe: over listed vertices, and with noise on the whole gradient (TTZ15)."""
