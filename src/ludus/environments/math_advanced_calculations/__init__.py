"""Arithmetic in a place where its rules are others, so that only the tools know the results."""
