"""From tasks to rollouts: reading rows, playing them, and keeping what happened."""
