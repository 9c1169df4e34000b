"""Puzzles that the library reasoning-gym generates and scores."""
