"""The newer address of modules about rollouts."""
