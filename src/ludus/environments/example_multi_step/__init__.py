"""Several lookups and one submission, in order."""
