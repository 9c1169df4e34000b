"""The result of a rollout in the shape that NeMo RL reads and checks.

NeMo RL trains on every item of the response that has generated token ids, and asserts that each prompt starts with all
tokens before it. Every number at the top level of a result becomes a metric.
"""

from __future__ import annotations

import math
from typing import Any

from ludus.remote.verdicts import is_masked

Row = dict[str, Any]

TOKENS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
BROKEN = "the prompt of a later model call does not continue the calls before it"

#: Fields of a Ludus record that would otherwise become metrics.
_LUDUS_FIELDS = frozenset(
    "rollout_id repeat attempt outcome rollout_seed timings usage model_calls verdict_fields task_fields".split()
)


def result_of(reply: Row) -> Row:
    """A trainer's result, made from an agent's reply."""
    hidden = reply.get("task_fields")
    result = {key: value for key, value in reply.items() if key not in _LUDUS_FIELDS}
    result |= hidden if isinstance(hidden, dict) else {}
    response = result.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    if isinstance(output, list) and not drop_broken_ids(output):
        result.setdefault("mask", BROKEN)
        result["mask_sample"] = True
    result["mask_sample"] = is_masked(result)
    if result["mask_sample"]:
        config = result.get("instance_config")
        result["instance_config"] = {**(config if isinstance(config, dict) else {}), "mask_sample": True}
    if not _adds_up(result.get("reward_components"), result.get("reward")):
        result.pop("reward_components", None)
    return result


def drop_broken_ids(output: list[Row]) -> bool:
    """Remove token ids that do not continue all ids before them. Returns whether every prompt did.

    The ids are not repaired: the caller masks the rollout.
    """
    seen: list[int] = []
    unbroken = True
    for item in output:
        if "generation_token_ids" not in item:
            continue
        prompt, generated = item.get("prompt_token_ids") or [], item["generation_token_ids"]
        if generated and prompt[: len(seen)] == seen:
            seen = prompt + generated
            continue
        unbroken = unbroken and not generated
        for key in TOKENS:
            item.pop(key, None)
    return unbroken


def _adds_up(parts: Any, reward: Any) -> bool:
    """Whether the components sum to the reward, as NeMo RL asserts."""
    if not isinstance(parts, dict) or not all(isinstance(part, (int, float)) for part in parts.values()):
        return False
    return math.isclose(math.fsum(parts.values()), reward, rel_tol=1e-5)
