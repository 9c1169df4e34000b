"""Environments that ship with Ludus, one folder each."""
