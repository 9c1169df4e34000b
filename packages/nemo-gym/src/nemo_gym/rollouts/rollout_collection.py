"""`nemo_gym.rollout_collection` at its newer address. It is the same module, so a test can patch either address."""

import sys

from nemo_gym import rollout_collection

sys.modules[__name__] = rollout_collection
