"""The base class of resources servers, and the bodies of their requests and replies."""

from __future__ import annotations

from abc import abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from nemo_gym._mcp_names import (
    NEMO_GYM_MCP_METADATA_KEY,
    NEMO_GYM_MCP_SESSION_TOKEN_HEADER,
    RESERVED_MCP_TOOL_NAMES,
    MCPServerMetadata,
)
from nemo_gym._sandbox_access import SandboxAccess
from nemo_gym._simple_server import SESSION_ID_KEY, BaseServer, SimpleServer, fastapi
from nemo_gym.config_types import AggregateMetrics, AggregateMetricsRequest, BaseRunServerInstanceConfig
from nemo_gym.episode_types import EpisodeId, TaskId
from nemo_gym.failure_kinds import validate_failure_kind
from nemo_gym.judge import judge_failsafe
from nemo_gym.mcp_auto_exposure import maybe_auto_expose
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.reward_profile import AggregateMetricsMixin, compute_aggregate_metrics
from nemo_gym.rollout_correlation import RolloutContextMiddleware

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = [
    "NEMO_GYM_MCP_METADATA_KEY",
    "NEMO_GYM_MCP_SESSION_TOKEN_HEADER",
    "RESERVED_MCP_TOOL_NAMES",
    "SESSION_ID_KEY",
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "BaseMultiRewardVerifyResponse",
    "BaseResourcesServer",
    "BaseResourcesServerConfig",
    "BaseRunRequest",
    "BaseRunServerInstanceConfig",
    "BaseSeedSessionRequest",
    "BaseSeedSessionResponse",
    "BaseServer",
    "BaseVerifyRequest",
    "BaseVerifyResponse",
    "MCPServerMetadata",
    "NeMoGymResponse",
    "NeMoGymResponseCreateParamsNonStreaming",
    "ResourcesCloseSessionRequest",
    "ResourcesCloseSessionResponse",
    "ResourcesSeedSessionRequest",
    "ResourcesSeedSessionResponse",
    "ResourcesVerifyRequest",
    "ReverifyMode",
    "SimpleResourcesServer",
    "SimpleServer",
    "normalize_tool_name",
]

T = TypeVar("T")


class ReverifyMode(str, Enum):  # noqa: UP042  (authors compare its text)
    """Whether stored rollouts can be judged again without their session."""

    STATELESS = "stateless"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"


class BaseResourcesServerConfig(BaseRunServerInstanceConfig):
    """The settings of a resources server."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNKNOWN

    expose_tools_over_mcp: bool = False


class BaseRunRequest(BaseModel):
    """A row. Classes of authors say whether its other fields are kept."""

    model_config = ConfigDict(populate_by_name=True)

    responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    capture_rollout_id: str | None = Field(default=None, alias="_ng_rollout_id", exclude=True)


class BaseVerifyRequest(BaseRunRequest):
    """A row with the response that is to be judged."""

    response: NeMoGymResponse


class BaseVerifyResponse(BaseVerifyRequest):
    """A verdict. A masked sample has a reward that does not measure the policy."""

    reward: float
    mask_sample: bool = False
    failure_kind: Annotated[str | None, AfterValidator(validate_failure_kind)] = None
    failure_reason: str | None = None


class BaseMultiRewardVerifyResponse(BaseVerifyResponse):
    """A verdict with named parts of its reward."""

    reward_components: dict[str, float]


class BaseSeedSessionRequest(BaseModel):
    """The start of a session, from a row."""


class BaseSeedSessionResponse(BaseModel):
    """The reply to the start of a session."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ResourcesSeedSessionRequest(_Strict):
    """The start of a session whose id the caller chose."""

    resources_session_id: str = Field(min_length=1)
    episode_id: EpisodeId
    task_id: TaskId
    task_data: dict[str, JsonValue]


class ResourcesSeedSessionResponse(_Strict):
    """The reply: the id, and how tools and sandbox are reached."""

    resources_session_id: str
    resources_tools: MCPServerMetadata | None = None
    sandbox_access: SandboxAccess | None = None


class ResourcesCloseSessionRequest(_Strict):
    """The end of a session."""

    resources_session_id: str
    episode_id: EpisodeId


class ResourcesCloseSessionResponse(_Strict):
    """The reply to the end of a session."""

    resources_session_id: str


class ResourcesVerifyRequest(_Strict, Generic[T]):
    """A typed request for a verdict."""

    episode_id: EpisodeId
    task_id: TaskId
    verification_input: T


class BaseResourcesServer(BaseServer):
    """A server of tools and a verifier."""

    config: BaseResourcesServerConfig


class SimpleResourcesServer(BaseResourcesServer, AggregateMetricsMixin, SimpleServer):
    """The base class of resources servers: `verify`, and routes that a subclass adds in `setup_webserver`."""

    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        """The application with the routes of every resources server, and a session for every request."""
        app: FastAPI = fastapi().FastAPI()
        self.setup_session_middleware(app)
        app.add_middleware(RolloutContextMiddleware)
        app.post("/seed_session")(self.seed_session)
        app.post("/verify")(judge_failsafe(self.verify))
        app.post("/close_session")(self.close_resources_session)
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        app.get("/reverify_mode")(self.get_reverify_mode)
        return app

    def setup_mcp(self, app: FastAPI) -> None:
        """Offer the tools over MCP, if the settings say so."""
        maybe_auto_expose(self, app)

    async def seed_session(
        self, body: ResourcesSeedSessionRequest | BaseSeedSessionRequest
    ) -> ResourcesSeedSessionResponse | BaseSeedSessionResponse:
        """Start a session. Servers with state override this."""
        if isinstance(body, ResourcesSeedSessionRequest):
            return ResourcesSeedSessionResponse(resources_session_id=body.resources_session_id)
        return BaseSeedSessionResponse()

    async def close_resources_session(self, body: ResourcesCloseSessionRequest) -> ResourcesCloseSessionResponse:
        """End a session whose id the caller chose."""
        return ResourcesCloseSessionResponse(resources_session_id=body.resources_session_id)

    @abstractmethod
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        """Judge a response."""

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """The metrics of rollouts, with those that the class computes itself."""
        return compute_aggregate_metrics(
            body.verify_responses,
            compute_metrics_fn=self.compute_metrics,
            get_key_metrics_fn=self.get_key_metrics,
            compute_repeat_metrics_fn=self.compute_repeat_metrics,
        )

    async def get_reverify_mode(self) -> ReverifyMode:
        """Whether stored rollouts can be judged again."""
        return self.config.REVERIFY_MODE

    def normalize_tool_name(self, name: str) -> str:
        """The name of a tool without the prefix that an MCP client gives it."""
        return normalize_tool_name(name, self.config.name or type(self).__name__)

    def mcp_tools(self, harvested: list[Any], catchall: Any) -> Any:
        """The tools that are offered over MCP: those of the routes, with `name`, `description` and `input_schema`.

        A subclass may add tools, also as dictionaries with these keys. A call is a POST request to `/NAME`, so that
        tools without a route of their own need a catch-all route, which is `catchall`.
        """
        return harvested

    def mcp_allowed_tools_for_session(self, seed_body: Any) -> list[str] | None:
        """The tools that a session may call over MCP; None for all."""
        return None


def normalize_tool_name(name: str, server_name: str | None = None) -> str:
    """The name of a tool without `mcp__SERVER__` in front of it. Without a server's name, of any server."""
    start = "mcp__"
    if server_name is not None:
        return name.removeprefix(f"{start}{server_name}__")
    _, found, tool = name.removeprefix(start).partition("__")
    return tool if name.startswith(start) and found else name
