"""The messages of an environment in which one agent answers one request: its input, its result and its failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, model_validator

from nemo_gym.base_resources_server import BaseVerifyResponse
from nemo_gym.episode_types import BaseEpisodeRequest, BaseEpisodeResponse, EpisodeFailure
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.rollout_observability import AgentObservationBundle

_PARAMS, _DATA = "responses_create_params", "task_data"


class SingleAgentTurnTaskInput(BaseModel):
    """What the agent is asked, and the task's own fields. Fields beside the two names belong to `task_data`."""

    model_config = ConfigDict(extra="forbid")

    responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    task_data: dict[str, JsonValue] = {}

    @model_validator(mode="before")
    @classmethod
    def _move_flat_fields(cls, row: Any) -> Any:
        if not isinstance(row, Mapping):
            return row
        flat = {key: value for key, value in row.items() if key not in (_PARAMS, _DATA)}
        data = row.get(_DATA, {})
        if not flat or not isinstance(data, Mapping):
            return row
        unequal = sorted(key for key in flat if key in data and data[key] != flat[key])
        if unequal:
            raise ValueError(f"{unequal[0]!r} differs between the row and its task_data: keep one of the two")
        moved = {_DATA: {**data, **flat}}
        return moved | {_PARAMS: row[_PARAMS]} if _PARAMS in row else moved


class SingleAgentTurnResult(BaseVerifyResponse):
    """The verdict about the agent's answer, with what the agent observed."""

    model_config = ConfigDict(extra="allow")

    ng_agent_observations: AgentObservationBundle | None = None


class SingleAgentTurnFailure(EpisodeFailure):
    """A failure, with the answer that the agent had given until then."""

    partial_response: NeMoGymResponse | None = None


class SingleAgentTurnRequest(BaseEpisodeRequest[SingleAgentTurnTaskInput]):
    """The request for an episode."""


class SingleAgentTurnResponse(BaseEpisodeResponse[SingleAgentTurnResult]):
    """The end of an episode."""

    failure: SingleAgentTurnFailure | None = None
