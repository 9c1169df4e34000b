"""Repositories with a bug, repaired with a shell and judged by hidden tests."""
