"""The base class of agents: `run` plays a row, `responses` answers with a whole trajectory."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

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
)
from nemo_gym.judge import resolved_signature
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.reward_profile import AggregateMetricsMixin, compute_aggregate_metrics
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body, rollout_context
from nemo_gym.server_utils import apply_rollout_prefix, rollout_path_prefix

if TYPE_CHECKING:
    from fastapi import FastAPI

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


class BaseResponsesAPIAgent(BaseServer):
    """A server that plays rows."""

    config: BaseResponsesAPIAgentConfig


class SimpleResponsesAPIAgent(BaseResponsesAPIAgent, AggregateMetricsMixin, SimpleServer):
    """The base class of agents. Subclasses define `responses` and `run`."""

    config: BaseResponsesAPIAgentConfig

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
        return app

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
        """The id of a row's rollout; None if nobody follows rollouts."""
        return maybe_rollout_id_from_run_body(body) if self._capture_correlation_enabled() else None

    def url_path_for_run(self, url_path: str, body: Any) -> str:
        """A path of another server, with the rollout in front of it if somebody follows rollouts."""
        return self._prefix(self.rollout_id_from_run(body)) + url_path

    def base_url_for_run(self, base_url: str, body: Any) -> str:
        """The URL of another server, with the rollout at its end if somebody follows rollouts."""
        capture = self._token_id_capture_enabled()
        return apply_rollout_prefix(base_url, self.rollout_id_from_run(body), token_capture=capture)

    def url_path_for_request(self, url_path: str, request: Any) -> str:
        """A path of another server, with the prefix of the request that is being answered."""
        rollout_id = getattr(request, "path_params", {}).get("rollout_id")
        return self._prefix(rollout_id if isinstance(rollout_id, str) else None) + url_path

    def resolve_model_base_url(self, model_server_name: str, rollout_id: str | None = None) -> str:
        """The URL of a model server for a client of OpenAI's API."""
        block = get_first_server_config_dict(self.server_client.global_config_dict, model_server_name)
        url = self.server_client._build_server_base_url(block)
        return f"{apply_rollout_prefix(url, rollout_id, token_capture=self._token_id_capture_enabled())}/v1"

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
        return tree.get(name) if isinstance(tree, (Mapping, DictConfig)) else None

    def _run_in_context(self) -> Any:
        """`run` within the context of its rollout. FastAPI sees the signature of `run`."""
        run = self.run

        @wraps(run)
        async def in_context(*args: Any, **kwargs: Any) -> Any:
            bodies = [value for value in (*args, *kwargs.values()) if hasattr(value, "responses_create_params")]
            with rollout_context(self.rollout_id_from_run(bodies[0]) if bodies else None):
                return await run(*args, **kwargs)

        in_context.__signature__ = resolved_signature(run)  # type: ignore[attr-defined]
        return in_context
