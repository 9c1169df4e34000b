"""The base class of agents: `run` plays a row, `responses` answers with a whole trajectory.

An agent that keeps something between requests has sessions: it overrides the two hooks `_seed_agent_session_state` and
`_close_agent_session_state`.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig
from pydantic import Field, PrivateAttr

from nemo_gym._addresses import redirected_base_url
from nemo_gym._agent_session_bodies import (
    AGENT_SESSION_COOKIE_KEY,
    AgentCloseSessionRequest,
    AgentCloseSessionResponse,
    AgentSeedSessionRequest,
    AgentSeedSessionResponse,
    AgentSessionSetupError,
    AgentSessionState,
)
from nemo_gym._agent_sessions import AgentSessions
from nemo_gym._handlers import call_handler, resolved_signature, with_request_type
from nemo_gym._simple_server import BaseServer, SimpleServer, fastapi
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.config_types import (
    ROLLOUT_PATH_PREFIX,
    TOKEN_CAPTURE_PATH_SEGMENT,
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseRunServerInstanceConfig,
)
from nemo_gym.global_config import (
    OBSERVABILITY_ENABLED_KEY_NAME,
    TOKEN_ID_CAPTURE_BLOCK,
    get_first_server_config_dict,
    top_level_setting,
)
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.reward_profile import AggregateMetricsMixin, compute_aggregate_metrics
from nemo_gym.rollout_correlation import (
    current_rollout_id,
    maybe_rollout_id_from_run_body,
    rollout_context,
    rollout_prefix_of,
)
from nemo_gym.server_utils import apply_rollout_prefix, rollout_path_prefix
from nemo_gym.tool_access import ToolAccess, ToolAccesses

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

__all__ = [
    "AGENT_SESSION_COOKIE_KEY",
    "AgentCloseSessionRequest",
    "AgentCloseSessionResponse",
    "AgentSeedSessionRequest",
    "AgentSeedSessionResponse",
    "AgentSessionSetupError",
    "AgentSessionState",
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "BaseResponsesAPIAgent",
    "BaseResponsesAPIAgentConfig",
    "SimpleResponsesAPIAgent",
]

log = logging.getLogger("nemo_gym")

_RESPONSES = "/v1/responses"


def __getattr__(name: str) -> Any:
    if name == "Body":  # FastAPI's, which agents import from here
        return fastapi().Body
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class BaseResponsesAPIAgentConfig(BaseRunServerInstanceConfig):
    """The settings of an agent."""

    skip_verification: bool = False
    skip_verification_reward: float = 0.0
    token_id_capture: bool = False
    session_close_retry_window_seconds: float = Field(default=300, gt=0)
    tool_accesses: ToolAccesses = []


class BaseResponsesAPIAgent(BaseServer):
    """A server that plays rows."""

    config: BaseResponsesAPIAgentConfig


class SimpleResponsesAPIAgent(BaseResponsesAPIAgent, AggregateMetricsMixin, SimpleServer):
    """The base class of agents. Subclasses define `responses` and `run`."""

    config: BaseResponsesAPIAgentConfig

    _agent_session_book: AgentSessions = PrivateAttr(default_factory=AgentSessions)

    @abstractmethod
    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """Answer a request with a whole trajectory."""

    @abstractmethod
    async def run(self, body: BaseRunRequest) -> BaseVerifyResponse:
        """Play a row and return its verdict."""

    def setup_webserver(self) -> FastAPI:
        """The application with the routes of every agent, and a session for every request."""
        app: FastAPI = fastapi().FastAPI()
        self.setup_session_middleware(app)
        prefix = f"/{ROLLOUT_PATH_PREFIX}/{{rollout_id}}"
        for path in (_RESPONSES, prefix + _RESPONSES, f"{prefix}/{TOKEN_CAPTURE_PATH_SEGMENT}{_RESPONSES}"):
            app.post(path)(self.responses)
        app.post("/run")(self._run_in_context())
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        app.post("/v1/agent_sessions")(with_request_type(self.seed_agent_session))
        app.post("/v1/agent_sessions/close")(with_request_type(self.close_agent_session))
        return app

    async def seed_agent_session(self, request: Request, body: AgentSeedSessionRequest) -> AgentSeedSessionResponse:
        """Open a session, once for equal requests, and remember it in the cookie."""
        if self.config.num_workers not in (None, 1):
            raise ValueError(
                f"{self.config.name} has {self.config.num_workers} workers, but sessions lie in one: set num_workers: 1"
            )
        cookie = self._agent_session_id_from_request(request)
        await self._agent_session_book.open(body, cookie, self._seed_agent_session_state)
        request.session[AGENT_SESSION_COOKIE_KEY] = body.agent_session_id
        return AgentSeedSessionResponse(agent_session_id=body.agent_session_id)

    async def close_agent_session(self, request: Request, body: AgentCloseSessionRequest) -> AgentCloseSessionResponse:
        """Close a session. A repeated close gets the same answer."""
        cookie = self._agent_session_id_from_request(request)
        window = self.config.session_close_retry_window_seconds
        return await self._agent_session_book.close(body, cookie, self._close_agent_session_state, window)

    async def _seed_agent_session_state(self, body: AgentSeedSessionRequest) -> AgentSessionState:
        """Make what a session needs. Agents with sessions override this."""
        raise NotImplementedError(f"{type(self).__name__} has no sessions: it must define _seed_agent_session_state")

    async def _close_agent_session_state(self, state: AgentSessionState) -> AgentCloseSessionResponse:
        """Release what a session holds. Agents with sessions override this."""
        raise NotImplementedError(f"{type(self).__name__} has no sessions: it must define _close_agent_session_state")

    def _agent_session_id_from_request(self, request: Any) -> str | None:
        """The id of the session that the request's cookie names."""
        try:
            session_id = request.session.get(AGENT_SESSION_COOKIE_KEY)
        except (AssertionError, AttributeError):  # the application, or a test double, has no sessions
            return None
        return session_id if isinstance(session_id, str) else None

    def _require_agent_session(self, agent_session_id: str | None) -> AgentSessionState:
        """The state of an open session; status 409 if there is none."""
        return self._agent_session_book.require(agent_session_id)

    def effective_tool_accesses(self, seed: AgentSeedSessionRequest) -> list[ToolAccess]:
        """The accesses of the configuration; those of the request replace the ones with the same name."""
        accesses = {access.name: access for access in (*self.config.tool_accesses, *seed.tool_accesses)}
        return list(accesses.values())

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """The metrics of rollouts, with those that the class computes itself; none without verification."""
        if self.config.skip_verification:
            log.warning("%s skips verification: there are no metrics of rewards", self.config.name)
            return AggregateMetrics()
        return compute_aggregate_metrics(
            body.verify_responses,
            compute_metrics_fn=self.compute_metrics,
            get_key_metrics_fn=self.get_key_metrics,
            compute_repeat_metrics_fn=self.compute_repeat_metrics,
        )

    def rollout_id_from_run(self, body: Any) -> str | None:
        """The id of a row's rollout; None if nobody follows rollouts. Ludus follows those that it plays."""
        return maybe_rollout_id_from_run_body(body) if self._capture_correlation_enabled() else current_rollout_id()

    def url_path_for_run(self, url_path: str, body: Any) -> str:
        """A path of another server, with the rollout in front of it if somebody follows rollouts."""
        return self._prefix(self.rollout_id_from_run(body)) + url_path

    def base_url_for_run(self, base_url: str, body: Any) -> str:
        """The URL of another server, with the rollout at its end if somebody follows rollouts."""
        capture = self._token_id_capture_enabled()
        return apply_rollout_prefix(base_url, self.rollout_id_from_run(body), token_capture=capture)

    def url_path_for_request(self, url_path: str, request: Any) -> str:
        """A path of another server, with the prefix of the request that is being answered."""
        path = getattr(getattr(request, "url", None), "path", None)
        if isinstance(path, str) and (prefix := rollout_prefix_of(path)):
            return prefix + url_path
        rollout_id = getattr(request, "path_params", {}).get("rollout_id")
        return self._prefix(rollout_id) + url_path if isinstance(rollout_id, str) else url_path

    def resolve_model_base_url(self, model_server_name: str, rollout_id: str | None = None) -> str:
        """The URL of a model server for a client of OpenAI's API."""
        url = redirected_base_url(model_server_name) or self._base_url(model_server_name)
        return f"{apply_rollout_prefix(url, rollout_id, token_capture=self._token_id_capture_enabled())}/v1"

    def _base_url(self, server_name: str) -> str:
        """The address of a server. A test double of the client may answer to either of its two methods."""
        client = self.server_client
        tree = getattr(client, "global_config_dict", None)
        if isinstance(tree, (Mapping, DictConfig)) and server_name in tree:
            url = client._build_server_base_url(get_first_server_config_dict(tree, server_name))
            if isinstance(url, str):
                return url
        return client._resolve_base_url(server_name)

    def _prefix(self, rollout_id: str | None) -> str:
        return rollout_path_prefix(rollout_id, token_capture=self._token_id_capture_enabled())

    def _model_call_capture_enabled(self) -> bool:
        return bool(self._setting(OBSERVABILITY_ENABLED_KEY_NAME))

    def _token_id_capture_enabled(self) -> bool:
        block = self._setting(TOKEN_ID_CAPTURE_BLOCK)
        if not isinstance(block, (Mapping, DictConfig)) or not block.get("enabled"):
            return False
        return self.config.token_id_capture or bool(block.get("all_agents"))

    def _capture_correlation_enabled(self) -> bool:
        return self._model_call_capture_enabled() or self._token_id_capture_enabled()

    def _setting(self, name: str) -> Any:
        """A setting of the whole run; None if the client is a test double without a configuration."""
        tree = getattr(self.server_client, "global_config_dict", None)
        return top_level_setting(tree, name) if isinstance(tree, (Mapping, DictConfig)) else None

    def _run_in_context(self) -> Any:
        """`run` within the context of its rollout. FastAPI sees the signature of `run`."""
        run = self.run

        @wraps(run)
        async def in_context(*args: Any, **kwargs: Any) -> Any:
            bodies = [value for value in (*args, *kwargs.values()) if hasattr(value, "responses_create_params")]
            with rollout_context(self.rollout_id_from_run(bodies[0]) if bodies else current_rollout_id()):
                return await call_handler(run, *args, **kwargs)

        in_context.__signature__ = resolved_signature(run)  # type: ignore[attr-defined]
        return in_context
