"""A conversation with fixed follow-up questions."""
