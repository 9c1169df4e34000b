"""Servers and agents that were written for NeMo Gym, run from their folders."""
