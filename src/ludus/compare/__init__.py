"""Whether one collection earns more reward than another: the work of `ludus compare`."""
