"""The environment for a resources server that is not Ludus's code."""
