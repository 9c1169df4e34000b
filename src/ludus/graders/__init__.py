"""Parts of verifiers: plain functions that any environment can call."""
