"""Training: what trainers need from rollouts."""
