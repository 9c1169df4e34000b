"""Collects rollouts."""

from nemo_gym.rollout_collection import RolloutCollectionHelper

__all__ = ["RolloutCollectionHelper"]
