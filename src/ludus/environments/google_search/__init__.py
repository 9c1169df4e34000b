"""Questions that are answered by searching and reading."""
