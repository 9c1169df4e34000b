"""Requests to refuse or not to refuse, instructions hidden in documents, and secrets to keep."""
