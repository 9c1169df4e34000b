"""The terminal browser: the views of `ludus view` for a remote machine."""
