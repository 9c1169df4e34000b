"""A counter that belongs to one rollout."""
