"""Hugging Face models in this process, and TRL, which trains them on rollouts."""
