"""What each turn of a recorded rollout was worth: the work of `ludus credit`."""
