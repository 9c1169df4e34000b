"""Find the rule of a few pairs of grids, and apply it to one more."""
