"""Adapters for trainers that bring an engine of their own. Ludus itself never imports this package."""
