"""A day's calendar that is kept in a conversation: constraints, conflicts, and a stream of such days."""
