"""Limits: how long each step of a rollout may take."""

from __future__ import annotations

from functools import cached_property

from pydantic import BaseModel, ConfigDict, PositiveFloat

from ludus.runtime.deadline import Deadline


class Limits(BaseModel):
    """Deadlines in seconds. All are finite, so no step can wait forever.

    `tool` limits all tool calls of one turn together. `group` limits how long a finished rollout waits for the other
    rollouts of its task.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    #: `open` of the resources
    open: PositiveFloat = 60.0
    #: one model call, with its retries
    model: PositiveFloat = 600.0
    tool: PositiveFloat = 120.0
    #: `verify`
    verify: PositiveFloat = 120.0
    #: `close` of the resources
    close: PositiveFloat = 30.0
    #: the whole rollout
    rollout: PositiveFloat = 3600.0
    group: PositiveFloat = 3600.0

    @cached_property
    def shortest(self) -> float:
        """The shortest limit of a single step."""
        return min(self.open, self.model, self.tool, self.verify)

    def deadline(self) -> Deadline:
        """A deadline for rollouts under these limits; an asyncio task that plays many rollouts may reuse it."""
        return Deadline(self.rollout, self.shortest)
