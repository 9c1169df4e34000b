"""The names that trainers import from here: they have modules of their own, and this one has had them for longer."""

from nemo_gym.cli.env import RunHelper
from nemo_gym.global_config import GlobalConfigDictParserConfig
from nemo_gym.rollout_collection import RolloutCollectionHelper

__all__ = ["GlobalConfigDictParserConfig", "RolloutCollectionHelper", "RunHelper"]
