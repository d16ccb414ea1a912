"""Integers out of fitted ones, with the constraints kept."""
