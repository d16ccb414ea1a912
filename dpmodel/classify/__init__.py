"""Private regressions as mechanisms see them."""
