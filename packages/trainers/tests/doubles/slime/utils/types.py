"""A double of slime's `Sample`, written from its documented fields: no wheel can be installed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


@dataclass
class Sample:
    """What slime trains on: `loss_mask` and `rollout_log_probs` cover the last `response_length` tokens."""

    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"

    prompt: Any = ""
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: float | None = None
    loss_mask: list[int] | None = None
    rollout_log_probs: list[float] | None = None
    weight_versions: list[str] = field(default_factory=list)
    status: Status = Status.PENDING
    remove_sample: bool = False
    rollout_id: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
