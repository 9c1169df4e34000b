"""Questions about SQLite's documentation, answered with citations that hold."""
