"""The environment that stands for a resources server that is not ours."""
