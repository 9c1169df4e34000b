"""From tasks to rollouts: reading rows, playing them, and recording the results."""
