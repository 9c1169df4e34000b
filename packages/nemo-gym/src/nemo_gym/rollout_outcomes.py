"""The failure of a rollout as the collector records it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator

from nemo_gym.episode_types import EpisodeFailure, EpisodeId


class RolloutFailure(BaseModel):
    """A rollout without a result: who noticed it, and whether the request had reached the environment server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    episode_id: EpisodeId
    run_id: str
    source: Literal["environment", "collector"]
    delivery: Literal["not_sent", "possibly_delivered", "delivered"]
    failure: EpisodeFailure
    http_status: int | None = None
    exception_type: str | None = None

    @model_validator(mode="after")
    def _environment_was_reached(self) -> RolloutFailure:
        if self.source == "environment" and self.delivery != "delivered":
            raise ValueError(f"delivery is {self.delivery}, but a failure from the environment was delivered")
        return self
