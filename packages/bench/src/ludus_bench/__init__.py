"""How many rollouts a second an environment and an engine bear, and what stops them: the work of `ludus bench`."""
