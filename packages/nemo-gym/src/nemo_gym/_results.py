"""What a trainer reads of a rollout, and asserts about it.

A trainer walks through the items of a response. Those with generated ids become turns to train on, and each prompt must
go on where the turn before it ended. Every number at the top of a result becomes a metric.
"""

from __future__ import annotations

import math
from typing import Any

Row = dict[str, Any]

TOKENS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
BROKEN = "the prompt of a later model call does not continue the calls before it"

#: What a record of ours says about itself: bookkeeping that would turn up as metrics.
_OURS = frozenset(
    "rollout_id repeat attempt outcome rollout_seed timings usage model_calls verdict_fields task_fields".split()
)


def result_of(told: Row) -> Row:
    """The result that a trainer gets, out of what an agent answered."""
    hidden = told.get("task_fields")
    result = {key: value for key, value in told.items() if key not in _OURS}
    result |= hidden if isinstance(hidden, dict) else {}
    response = result.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    if isinstance(output, list) and not keep_one_chain(output):
        result.setdefault("mask", BROKEN)
        result["mask_sample"] = True
    result["mask_sample"] = _is_masked(result)
    if result["mask_sample"]:
        config = result.get("instance_config")
        result["instance_config"] = {**(config if isinstance(config, dict) else {}), "mask_sample": True}
    if not _adds_up(result.get("reward_components"), result.get("reward")):
        result.pop("reward_components", None)
    return result


def keep_one_chain(output: list[Row]) -> bool:
    """Leave token ids only where they continue all that came before; whether they did so everywhere.

    Ids that break the chain are not repaired: the caller masks the rollout.
    """
    seen: list[int] = []
    whole = True
    for item in output:
        if "generation_token_ids" not in item:
            continue
        prompt, written = item.get("prompt_token_ids") or [], item["generation_token_ids"]
        if written and prompt[: len(seen)] == seen:
            seen = prompt + written
            continue
        whole = whole and not written
        for key in TOKENS:
            item.pop(key, None)
    return whole


def _is_masked(result: Row) -> bool:
    config = result.get("instance_config")
    return bool(result.get("mask_sample") or (isinstance(config, dict) and config.get("mask_sample")))


def _adds_up(parts: Any, reward: Any) -> bool:
    """Whether components are parts of the reward, which is what a trainer takes them for."""
    if not isinstance(parts, dict) or not all(isinstance(part, (int, float)) for part in parts.values()):
        return False
    return math.isclose(math.fsum(parts.values()), reward, rel_tol=1e-5)
