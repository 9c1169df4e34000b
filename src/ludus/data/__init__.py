"""Data: rows from anybody's files to tasks, and advantages. `ludus data` is in the package ludus-data."""
