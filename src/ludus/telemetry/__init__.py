"""What other people's tools see of a collection: spans, metrics and the charts of experiment trackers."""
