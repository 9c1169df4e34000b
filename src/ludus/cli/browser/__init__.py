"""The terminal browser of `ludus show`: the views of `ludus view`, for those on a remote machine."""
