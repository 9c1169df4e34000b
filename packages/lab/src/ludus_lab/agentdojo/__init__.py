"""Tasks with tools whose outputs may hold somebody else's instructions."""
