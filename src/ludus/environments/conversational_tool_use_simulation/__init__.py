"""Conversations in which models play the customer, the tools and the judge."""
