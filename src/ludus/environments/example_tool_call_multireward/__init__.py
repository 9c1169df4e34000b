"""One tool call, rewarded in three parts."""
