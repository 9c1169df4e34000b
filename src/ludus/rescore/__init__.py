"""Scoring stored rollouts again: the work of `ludus verify`."""
