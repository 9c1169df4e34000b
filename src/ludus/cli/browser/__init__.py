"""The terminal browser of `ludus show`: the views of `ludus view` for a remote machine."""
