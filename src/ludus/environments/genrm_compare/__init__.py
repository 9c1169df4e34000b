"""A reward model compares answers to the same prompt with each other."""
