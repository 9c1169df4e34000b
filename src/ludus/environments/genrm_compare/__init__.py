"""Answers to the same prompt, compared with each other by a reward model."""
