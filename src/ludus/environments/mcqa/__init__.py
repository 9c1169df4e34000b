"""Multiple choice questions."""
