"""A collection in other tools: spans, metrics, and the charts of experiment trackers."""
