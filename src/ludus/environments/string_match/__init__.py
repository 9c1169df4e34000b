"""Short answers, compared as texts and as numbers."""
