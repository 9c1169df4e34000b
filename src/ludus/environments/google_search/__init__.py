"""Questions that the model answers by searching and reading pages."""
