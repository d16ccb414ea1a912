"""Mechanisms for linear programs and, where the name does not say otherwise, for every cone program."""
