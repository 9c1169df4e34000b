"""Converters between the Responses format and Chat Completions, Anthropic Messages and their streams."""
