"""The bodies of the requests that open and close an agent's session, and what an agent keeps in between."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym._sandbox_access import SandboxAccess
from nemo_gym.episode_types import EpisodeId, TaskId
from nemo_gym.rollout_observability import AgentObservationBundle
from nemo_gym.tool_access import ToolAccesses

#: The key of a request's session that names the agent's session.
AGENT_SESSION_COOKIE_KEY = "agent_session_id"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AgentSeedSessionRequest(_Strict):
    """The start of an agent's session whose id the caller chose."""

    agent_session_id: str = Field(min_length=1)
    episode_id: EpisodeId
    task_id: TaskId
    tool_accesses: ToolAccesses = []
    sandbox_access: SandboxAccess | None = None


class AgentSeedSessionResponse(_Strict):
    """The reply to the start of a session."""

    agent_session_id: str


class AgentCloseSessionRequest(_Strict):
    """The end of an agent's session."""

    agent_session_id: str
    episode_id: EpisodeId


class AgentCloseSessionResponse(_Strict):
    """The reply to the end: what the agent observed, and the cookies of its resources server."""

    agent_session_id: str
    agent_observations: AgentObservationBundle | None = None
    resources_cookies: dict[str, str] | None = None


@dataclass
class AgentSessionState:
    """What an agent keeps for one session. Agents add fields in a subclass."""

    request: AgentSeedSessionRequest


class AgentSessionSetupError(Exception):
    """Opening a session failed, and `state` holds what its close must release. The caller gets `error`."""

    def __init__(self, state: AgentSessionState, *, error: BaseException) -> None:
        super().__init__(str(error))
        self.state = state
        self.error = error
