"""Tasks of the verifiers library."""
