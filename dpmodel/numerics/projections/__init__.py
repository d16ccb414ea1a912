"""Nearest points in closed form."""
