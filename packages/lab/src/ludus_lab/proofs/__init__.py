"""Prove theorems in Coq."""
