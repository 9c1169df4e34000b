"""When a group is closed, and whether it is delivered to the trainer: plain numbers, chosen once for a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ludus.errors import UserError


def check_whole(name: str, value: Any, least: int) -> None:
    """Refuse a setting that is not a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UserError(f"{name} must be a whole number of at least {least}, not {value!r:.60}")


@dataclass(frozen=True)
class GroupPolicy:
    """How groups are filled and closed.

    - `size`: the members of a group. `extra` more are started; the first `size` to finish make the group, and the
      stragglers are cancelled.
    - `replacements`: how many failed or dropped members of a group are replaced. When they are used up, the group is
      closed short.
    - `min_size`: a group with fewer members that can be trained on is dropped; `min_size=size` drops every short group.
      By default 2, or 1 if `size` is 1.
    - `deadline`: seconds after the start of its first member until a group is closed with the members it has.
    - `keep_without_signal`: deliver also groups whose members all have the same rewards, so that no advantage differs.
    - `max_staleness`: a member is dropped if its oldest call is this many policy versions behind when its group is
      delivered; 0 allows the current version only. A rollout in flight that is too old is ended, recorded as failed
      with kind `stale`, and replaced.
    - `max_span`: a member is dropped if its calls span more than this many updates of the weights.
    - `over_budget`: what happens to a member beyond `max_staleness` or `max_span`. `drop` is said above. `cut` keeps it
      and takes only the tokens of those versions out of the loss: the old ones, or all after the last turn within the
      span. No rollout in flight is ended. A member of which nothing is left is dropped.
    """

    size: int = 8
    extra: int = 0
    replacements: int = 8
    min_size: int | None = None
    deadline: float | None = None
    keep_without_signal: bool = False
    max_staleness: int | None = None
    max_span: int | None = None
    over_budget: Literal["drop", "cut"] = "drop"

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        lowest = {"size": 1, "extra": 0, "replacements": 0, "min_size": 0, "max_staleness": 0, "max_span": 0}
        for name, least in lowest.items():
            value = getattr(self, name)
            if value is None and name in ("min_size", "max_staleness", "max_span"):
                continue
            check_whole(name, value, least)
        if self.deadline is not None and not (isinstance(self.deadline, (int, float)) and self.deadline > 0):
            raise UserError(f"deadline must be a positive number of seconds, not {self.deadline!r:.60}")
        if self.over_budget not in ("drop", "cut"):
            raise UserError(f"over_budget must be drop or cut, not {self.over_budget!r:.60}")
        if self.min_size is not None and self.min_size > self.size:
            raise UserError(f"min_size is {self.min_size}, more than the size {self.size}", "Lower min_size")

    @property
    def least(self) -> int:
        """The fewest trainable members of a delivered group."""
        return min(2, self.size) if self.min_size is None else self.min_size
