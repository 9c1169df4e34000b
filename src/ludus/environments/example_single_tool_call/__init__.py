"""One tool that answers anything asked of it."""
