"""Data: rows from anybody's files to tasks, and rollouts to anybody's training set."""
