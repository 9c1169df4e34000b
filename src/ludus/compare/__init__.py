"""Two collections and what their difference shows: the work of `ludus compare`."""
