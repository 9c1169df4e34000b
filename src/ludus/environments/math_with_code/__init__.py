"""Mathematical problems with a Python session."""
