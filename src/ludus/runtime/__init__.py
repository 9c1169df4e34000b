"""How code is run: deadlines, threads, processes, JSON, keys and settings."""
