"""Environments whose tasks and judges come from packages of Python and of Debian."""
