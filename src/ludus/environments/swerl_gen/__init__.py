"""Repairs of repositories as search/replace answers, and scripts that reproduce a bug."""
