"""The README of an exported dataset folder: it tells `load_dataset` where the rows are, and people what they are."""

from __future__ import annotations

import re

_CARD = """\
---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*.parquet
---
# Rollouts of {name}

One row a rollout, exported by Ludus. Load it with `datasets.load_dataset("PATH OF THIS FOLDER", split="train")`.

| column | content |
| --- | --- |
| `messages`, `tools` | the conversation and the offered tools, in the format of Chat Completions |
| `reward`, `turn_rewards`, `verdict` | the verifier's result |
| `task` | the row of the task |
| `rollout_id`, `task_id`, `repeat`, `environment` | which attempt at which task |
| `outcome`, `stop_reason`, `usage` | how the attempt ended and what it cost |
| `receipt`, `policy_versions` | the verifier, task and response that the reward belongs to; who wrote the response |
"""


def card(run: str) -> str:
    """The text of the README for a run."""
    return _CARD.format(name=re.sub(r"[^\w.-]+", "-", run) or "a run")
