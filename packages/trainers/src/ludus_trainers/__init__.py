"""Adapters for trainers, and models of transformers. Ludus finds both by entry points and never imports this."""
