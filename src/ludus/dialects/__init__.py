"""Other ways to say the same: Chat Completions, Anthropic Messages and streams, converted at the edges only."""
