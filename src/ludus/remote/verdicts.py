"""What a server's reply says about a rollout: its verdict, that it is masked, or a failure in place of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ludus.errors import Failure
from ludus.outcome import TAKEN, Verdict
from ludus.record import read_verdict
from ludus.runtime.keys import without_keys_and_paths

#: The field in which a server of NeMo Gym names a failure, in place of a verdict.
_FAILURE = "_ng_failure_class"

#: Fields of a server's reply that are not values of the verdict. Other servers may use names that our record uses.
_NOT_A_VALUE = TAKEN | {"responses_create_params", "mask_sample", "instance_config", "failure_kind", "failure_reason"}

#: The optional parts of our verdicts, with a check of each. Other servers may mean something else by these names.
_PARTS: dict[str, Callable[[Any], bool]] = {
    "reward_components": lambda parts: isinstance(parts, dict) and all(map(_is_number, parts.values())),
    "turn_rewards": lambda rewards: isinstance(rewards, list) and all(map(_is_number, rewards)),
    "mask": lambda reason: isinstance(reason, str),
}


def verdict_in(row: Any, request: dict[str, Any]) -> Verdict:
    """The verdict in a server's reply: the fields that the server added to the request."""
    if isinstance(row, dict) and (failure := failure_in(row)) is not None:
        raise failure
    if not isinstance(row, dict) or "reward" not in row:
        raise Failure("bad_verdict", f"the server gave no reward: {str(row)[:200]}", stage="verify")
    if row["reward"] is None and not is_masked(row):  # JSON has no NaN: servers write null in its place
        raise Failure("bad_verdict", "the server's reward is null: it was None or NaN", stage="verify")
    names = row.get("verdict_fields")
    if not isinstance(names, list):
        names = [key for key, value in row.items() if key not in _NOT_A_VALUE and request.get(key, ...) != value]
    parts = {key: row[key] for key, fits in _PARTS.items() if fits(row.get(key)) and request.get(key) != row[key]}
    if is_masked(row) and not parts.get("mask"):
        parts["mask"] = str(row.get("failure_reason") or row.get("failure_kind") or "the server says so")
    row = {key: value for key, value in row.items() if key not in _PARTS} | parts
    return read_verdict(row, (key for key in names if isinstance(key, str) and key not in _NOT_A_VALUE))


def failure_in(row: dict[str, Any]) -> Failure | None:
    """The failure that a server of NeMo Gym reports in place of a verdict, whatever reward stands beside it."""
    name = row.get(_FAILURE)
    if name is None:
        return None
    told = [row[key] for key in row if key.startswith("_ng_failure_") and key != _FAILURE]
    reason = next((text for text in (*told, row.get("failure_reason")) if isinstance(text, str) and text), "")
    cause = " ".join(reason.split())[:2000] or f"the server reports {name!r:.80} and gives no cause"
    return Failure(str(name)[:80] or "failed", without_keys_and_paths(cause), stage="verify")


def is_masked(row: dict[str, Any]) -> bool:
    """Whether a server masked a rollout: in `mask_sample`, or in `instance_config.mask_sample`, which NeMo RL reads."""
    config = row.get("instance_config")
    return bool(row.get("mask_sample") or (isinstance(config, dict) and config.get("mask_sample")))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
