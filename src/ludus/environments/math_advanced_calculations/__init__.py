"""Arithmetic with altered operations, so that only the tools know the results."""
