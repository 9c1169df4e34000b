"""What a collection says about its tasks and its policy, and what an environment costs: the work of `ludus profile`."""
