"""Mathematical problems with a final answer."""
