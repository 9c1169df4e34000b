"""Service desks with written policies and a simulated user."""
