"""Look up several values, then submit them in order."""
